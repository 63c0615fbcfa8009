# SPDX-License-Identifier: Apache-2.0
"""The two ways in which Forebay fails: before anything started, and after."""

_SHOWN_MAX = 200  # characters of a value in a message


class RefusedInput(ValueError):  # noqa: N818 (the name is the API's)
    """Input that is refused before anything starts.

    The message is one line, ``field: 'value': remedy``. It shows the first 200 characters of a long value, and line
    ends and the like as escapes.

    Attributes:
        field: The name of the argument, the option or the key.
        value: All of what was given, as text.
        remedy: What is wrong with the value, and what to do about it.
    """

    def __init__(self, field: str, value: object, remedy: str) -> None:
        """Puts the message together.

        Args:
            field: The name of the argument, the option or the key.
            value: What was given. ``str()`` makes it text.
            remedy: What is wrong with the value, and what to do about it.
        """
        self.value = str(value)
        shown = self.value if len(self.value) <= _SHOWN_MAX else f"{self.value[:_SHOWN_MAX]}..."
        # The field and the remedy can quote what a file has, too.
        message = f"{field}: '{shown}': {remedy}"
        super().__init__("".join(c if c.isprintable() else repr(c)[1:-1] for c in message))
        self.field = field
        self.remedy = remedy

    def __reduce__(self) -> tuple[type["RefusedInput"], tuple[str, str, str], dict[str, object]]:
        # An exception is otherwise made again from its message alone, and then a pool of processes loses it.
        return type(self), (self.field, self.value, self.remedy), self.__dict__


class OperationFailed(RuntimeError):  # noqa: N818 (the name is the API's)
    """Something that was started and failed: a drive, the operating system, a GPU.

    A use of a storage that is closed raises it too, and so does a use in a forked process.
    """
