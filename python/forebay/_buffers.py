# SPDX-License-Identifier: Apache-2.0
"""Checks of what callers give to be read or written, made at the call."""

import operator
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, SupportsFloat, SupportsIndex, cast

from forebay._native import core
from forebay.errors import RefusedInput

if sys.version_info >= (3, 12):
    from collections.abc import Buffer
else:
    Buffer = Any  # type checkers take NumPy's arrays for buffers from 3.12 on


class _SharesByDlpack(Protocol):
    @property
    def __dlpack_device__(self) -> Callable[[], tuple[int, int]]: ...
    @property
    def __dlpack__(self) -> Callable[..., object]: ...


class _SharesByCuda(Protocol):
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...


if TYPE_CHECKING:
    Tensor = Buffer | _SharesByDlpack | _SharesByCuda
else:
    Tensor = Any

# Of DLPack. Memory of the host, which a GPU may have locked; and memory of a CUDA GPU.
_HOST_DEVICES, _CUDA_DEVICES = (1, 3), (2, 13)
_OPAQUE_TYPE = 3
_NO_SYNCHRONISATION = -1  # the argument that the protocol has for it

_POINTER_REMEDY = (
    "holds pointers, which mean nothing on a drive; convert it to numbers, for instance with .astype('f8')"
)

_NAMES = re.compile(r":[^:]*:")  # of the fields of a structure
_POINTERS = re.compile(r"[OPz&X]|Z(?![fdg])")


def flat(buffer: "Buffer", *, writable: bool) -> memoryview:
    """Returns the bytes of a buffer.

    Args:
        buffer: What the caller gave; it may be any object.
        writable: Whether the bytes will be written to.

    Returns:
        A contiguous view of bytes, which keeps the buffer alive.

    Raises:
        RefusedInput: The object has no such buffer, or its bytes mean nothing on a drive.
    """
    dtype = getattr(buffer, "dtype", None)
    what = _named(buffer)
    try:
        view = memoryview(buffer)
    except (TypeError, ValueError, BufferError) as error:
        raise RefusedInput("buffer", what, _remedy(dtype, error)) from None
    if _POINTERS.search(_NAMES.sub("", view.format)):
        raise RefusedInput("buffer", what, _POINTER_REMEDY)
    if not view.c_contiguous:
        copy = "pass numpy.ascontiguousarray(array)"
        raise RefusedInput("buffer", what, _contiguity_remedy(copy, writable=writable))
    if writable and view.readonly:
        raise RefusedInput("buffer", what, "is read-only; pass one that can be written, such as a bytearray")
    return view.cast("B") if view.nbytes else memoryview(bytearray())


def _contiguity_remedy(copy: str, *, writable: bool) -> str:
    return f"is not contiguous in memory; {'read into a contiguous array, then copy from it' if writable else copy}"


@dataclass(frozen=True)
class Memory:
    """Bytes that a transfer moves."""

    address: int
    size_bytes: int
    on_gpu: bool
    keeps: object  # the bytes alive
    stream: int | None = None  # with which their owner orders what uses them


def memory_of(buffer: object, *, writable: bool) -> Memory:
    """Returns the bytes of a buffer, of an object with DLPack, or of one with the CUDA array interface.

    Args:
        buffer: What the caller gave; it may be any object.
        writable: Whether the bytes will be written to.

    Raises:
        RefusedInput: The object has no such bytes, or they mean nothing on a drive.
    """
    if isinstance(buffer, bytes | bytearray | memoryview) or not _is_tensor(buffer):
        view = flat(buffer, writable=writable)
        return Memory(core().address_of(view) if len(view) else 0, len(view), on_gpu=False, keeps=view)
    if hasattr(buffer, "__dlpack__"):
        return _of_dlpack(cast("_SharesByDlpack", buffer), writable=writable)
    return _of_cuda_array(cast("_SharesByCuda", buffer), writable=writable)


def _is_tensor(buffer: object) -> bool:
    """Whether it has to be asked by a protocol of tensors. The buffer of an object of the host says more."""
    if not (hasattr(buffer, "__dlpack__") or hasattr(buffer, "__cuda_array_interface__")):
        return False
    try:
        with memoryview(buffer):  # type: ignore[arg-type]
            return False
    except TypeError:
        return True
    except (ValueError, BufferError):
        return False


def _of_dlpack(tensor: _SharesByDlpack, *, writable: bool) -> Memory:
    what = _named(tensor)
    try:
        device, number = tensor.__dlpack_device__()
    except Exception as error:
        raise RefusedInput("buffer", what, f"its __dlpack_device__ fails: {error}") from error
    if device not in _HOST_DEVICES + _CUDA_DEVICES:
        remedy = f"is on DLPack device {int(device)}:{number}; pass memory of the host or of a CUDA GPU"
        raise RefusedInput("buffer", what, remedy)
    # Of a GPU: its owner need not make any stream wait; the argument `stream` of the transfer does that.
    options = {"stream": _NO_SYNCHRONISATION} if device in _CUDA_DEVICES else {}
    try:
        try:
            capsule = tensor.__dlpack__(max_version=(1, 0), **options)
        except TypeError:  # of a library that knows no versions
            capsule = tensor.__dlpack__(**options)
    except Exception as error:
        raise RefusedInput("buffer", what, f"shares no memory by DLPack: {error}") from error
    address, size_bytes, device, _, code, read_only, contiguous = core().facts_of_dlpack(capsule)
    if code == _OPAQUE_TYPE:
        raise RefusedInput("buffer", what, _POINTER_REMEDY)
    if not contiguous:
        raise RefusedInput("buffer", what, _contiguity_remedy("pass tensor.contiguous()", writable=writable))
    if writable and read_only:
        raise RefusedInput("buffer", what, "is read-only by DLPack; pass a tensor that can be written")
    return Memory(address, size_bytes, on_gpu=device in _CUDA_DEVICES, keeps=(capsule, tensor))


def _of_cuda_array(array: _SharesByCuda, *, writable: bool) -> Memory:
    what = _named(array)
    interface = array.__cuda_array_interface__
    try:
        (address, read_only), shape, code = interface["data"], interface["shape"], interface["typestr"]
        item_bytes = int(re.sub(r"\D", "", code) or 0)
        strides = interface.get("strides")
        stream = interface.get("stream")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RefusedInput("buffer", what, f"its __cuda_array_interface__ is incomplete: {error!r}") from error
    if "O" in code:
        raise RefusedInput("buffer", what, _POINTER_REMEDY)
    size_bytes = item_bytes
    contiguous = True
    for axis in reversed(range(len(shape))):
        contiguous &= strides is None or shape[axis] <= 1 or strides[axis] == size_bytes
        size_bytes *= shape[axis]
    if size_bytes and not contiguous:
        raise RefusedInput("buffer", what, _contiguity_remedy("pass a contiguous copy", writable=writable))
    if writable and read_only:
        raise RefusedInput("buffer", what, "is read-only; pass an array that can be written")
    return Memory(int(address), size_bytes, on_gpu=True, keeps=array, stream=stream_handle(stream))


def _named(tensor: object) -> str:
    dtype = getattr(tensor, "dtype", None)
    return type(tensor).__name__ if dtype is None else f"{type(tensor).__name__} of {dtype}"


def stream_handle(stream: object) -> int | None:
    """Returns the number of a CUDA stream.

    Args:
        stream: None, the number itself, or an object with ``__cuda_stream__``, ``cuda_stream`` (PyTorch) or ``ptr``
            (CuPy).

    Raises:
        RefusedInput: It is none of these.
    """
    if stream is None:
        return None
    handle = stream
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        handle = (protocol() if callable(protocol) else protocol)[1]
    else:
        handle = getattr(stream, "cuda_stream", getattr(stream, "ptr", stream))
    try:
        number = operator.index(handle)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if isinstance(handle, bool) or not 0 <= number < 2**64:
        remedy = (
            "pass a CUDA stream: torch.cuda.Stream, cupy.cuda.Stream, an object with __cuda_stream__, or its handle"
        )
        raise RefusedInput("stream", stream, remedy)
    return number


def _remedy(dtype: object, error: Exception) -> str:
    if getattr(dtype, "kind", "") in ("m", "M"):
        return "holds dates or times, for which Python has no buffer; pass them as integers: array.view('i8')"
    if isinstance(error, TypeError):
        return (
            "has no buffer in host memory, and neither __dlpack__ nor __cuda_array_interface__; "
            "pass a bytearray, a NumPy array or a tensor"
        )
    return f"has no buffer ({error}); pass a view of it as bytes: array.view('u1')"


def whole(field: str, value: SupportsIndex, most: int = 2**63 - 1) -> int:
    """Returns a whole number.

    Args:
        field: The name of the argument.
        value: What the caller gave. A ``bool`` is no number here.
        most: The largest number that is allowed.

    Raises:
        RefusedInput: It is not a whole number from 0 to ``most``.
    """
    remedy = f"must be a whole number from 0 to {most}"
    try:
        number = operator.index(value)
    except TypeError:
        raise RefusedInput(field, value, remedy) from None
    if isinstance(value, bool) or not 0 <= number <= most:
        raise RefusedInput(field, value, remedy)
    return number


def nanoseconds(field: str, seconds: float) -> int:
    """Returns a time in nanoseconds.

    Args:
        field: The name of the argument.
        seconds: What the caller gave.

    Raises:
        RefusedInput: It is not a number of seconds from a nanosecond to 292 years.
    """
    is_number = isinstance(seconds, SupportsFloat) and not isinstance(seconds, bool)
    value = float(seconds) * 1e9 if is_number else 0.0
    if not 1 <= value < 2**63:
        raise RefusedInput(field, seconds, "must be a number of seconds, more than 0 and less than 9.2e9")
    return int(value)


def within(field: str, offset: SupportsIndex, size: int, of: str, of_bytes: int) -> int:
    """Returns the offset of a range of ``size`` bytes.

    Args:
        field: The name of the argument.
        offset: What the caller gave.
        size: How many bytes are to be moved.
        of: What the range must lie in, in words.
        of_bytes: The size of that.

    Raises:
        RefusedInput: The offset is not a whole number, or the range ends beyond ``of_bytes``.
    """
    at = whole(field, offset)
    if at + size > of_bytes:
        remedy = (
            f"{size} bytes from there end beyond the {of_bytes} bytes of {of}; lower the offset or pass fewer bytes"
        )
        raise RefusedInput(field, at, remedy)
    return at


def text(field: str, value: str, remedy: str = "must be a string") -> str:
    """Returns a string that C++ can hold.

    Args:
        field: The name of the argument.
        value: What the caller gave.
        remedy: What to say if it is not a string.

    Raises:
        RefusedInput: It is not a string, holds a NUL character, or cannot be written as UTF-8.
    """
    if not isinstance(value, str):
        raise RefusedInput(field, value, remedy)
    if "\0" in value:
        raise RefusedInput(field, value.replace("\0", "\\0"), "holds a NUL character; take it out")
    try:
        value.encode()
    except UnicodeEncodeError:
        shown = value.encode(errors="backslashreplace").decode()
        raise RefusedInput(field, shown, "holds a surrogate, which UTF-8 cannot have; take it out") from None
    return value
