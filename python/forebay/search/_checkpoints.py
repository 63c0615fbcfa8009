# SPDX-License-Identifier: Apache-2.0
"""What the steps of a build have made, kept in a folder so that a build that was ended goes on from there."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from forebay.errors import OperationFailed, RefusedInput

_PARAMETERS = "build.json"


class Checkpoints:
    """Arrays by name. Without a folder they are in memory and nothing is kept."""

    def __init__(self, folder: Path | None, parameters: dict[str, Any]) -> None:
        """Takes a folder.

        Args:
            folder: The folder, which is made if there is none; or None.
            parameters: What the build depends on, in terms of JSON.

        Raises:
            RefusedInput: The folder cannot be used, or keeps a build with other parameters.
        """
        self._folder = None if folder is None else Path(folder)
        if self._folder is None:
            return
        described = self._folder / _PARAMETERS
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if not described.exists():
                _replace(described, lambda path: path.write_text(json.dumps(parameters, indent=1) + "\n"))
            before = json.loads(described.read_text())
        except OSError as error:
            remedy = f"cannot be used: {error.strerror or error}; name another folder"
            raise RefusedInput("checkpoints", folder, remedy) from None
        except ValueError:
            before = None
        if not isinstance(before, dict):
            remedy = f"its {_PARAMETERS} is damaged; remove the folder, or name another"
            raise RefusedInput("checkpoints", folder, remedy)
        for name, value in parameters.items():
            if before.get(name) != value:
                remedy = f"keeps a build with {name} {before.get(name)}, and this one has {value}"
                raise RefusedInput("checkpoints", folder, f"{remedy}; remove the folder, or name another")

    def array(self, name: str, make: Callable[[], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Returns the array that a step makes, or has made before."""
        if self._folder is None:
            return make()
        path = self._folder / f"{name}.npy"
        if not path.exists():
            made = make()
            self._write(path, lambda part: _save(part, made))
        try:
            found: npt.NDArray[Any] = np.load(path, mmap_mode="c")  # what changes in memory does not change the file
        except (EOFError, OSError, ValueError) as error:
            raise RefusedInput("checkpoints", path, f"cannot be read: {error}; remove it") from None
        return found

    def growing(self, name: str, shape: tuple[int, ...]) -> tuple[npt.NDArray[np.int32], int]:
        """Returns an ``int32`` array that a step fills piece by piece, and how many pieces it has."""
        if self._folder is None:
            return np.full(shape, -1, np.int32), 0
        path, done = self._folder / f"{name}.npy", self._folder / f"{name}.json"
        if path.exists() and done.exists():
            try:
                np.load(path, mmap_mode="r")  # to write, NumPy would make a file longer that was cut
                found, pieces = np.load(path, mmap_mode="r+"), int(json.loads(done.read_text()))
            except (EOFError, OSError, TypeError, ValueError) as error:
                raise RefusedInput("checkpoints", path, f"cannot be read: {error}; remove it") from None
            if (found.dtype, found.shape) != (np.dtype(np.int32), shape):
                what = f"has {found.dtype} of shape {found.shape}, and must have int32 of shape {shape}"
                raise RefusedInput("checkpoints", path, f"{what}; remove it")
            return found, pieces
        try:
            done.unlink(missing_ok=True)  # lest it be taken for what is known of the new array
            array = np.lib.format.open_memmap(path, "w+", np.int32, shape)
            with path.open("rb+") as file:  # a disk that is full would end the process when the mapping is written
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        except OSError as error:
            raise _unwritable(path, error) from None
        array[:] = -1
        return array, 0

    def grown(self, name: str, array: npt.NDArray[np.int32], pieces: int) -> None:
        """Notes that an array of ``growing`` has so many pieces."""
        if self._folder is not None and isinstance(array, np.memmap):
            array.flush()
            self._write(self._folder / f"{name}.json", lambda path: path.write_text(json.dumps(pieces)))

    @staticmethod
    def _write(path: Path, write: Callable[[Path], object]) -> None:
        try:
            _replace(path, write)
        except OSError as error:
            raise _unwritable(path, error) from None


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Writes a file that has its name only once it is whole and durable."""
    part = path.with_name(f"{path.name}.part")
    write(part)
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.replace(path)


def _unwritable(path: Path, error: OSError) -> OperationFailed:
    return OperationFailed(f"checkpoints: '{path}': cannot be written: {error.strerror or error}")


def _save(path: Path, array: npt.NDArray[Any]) -> None:
    with path.open("wb") as file:
        np.save(file, array)
