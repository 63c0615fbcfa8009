# SPDX-License-Identifier: Apache-2.0
"""The operations on arrays that a build of an index needs, by NumPy on the CPU and by PyTorch on a GPU.

Both kinds of arrays have the same indexing, arithmetic and comparisons. What differs is here.
"""

import importlib
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from forebay.errors import RefusedInput

Array = Any
"""An array of NumPy or a tensor of PyTorch."""
_FIXED_POINT = float(1 << 30)


class Arrays(Protocol):
    """Where a build computes."""

    numbers: int
    """How many numbers a temporary array holds: enough to keep the device busy, and few enough for its memory."""

    def put(self, array: npt.NDArray[Any]) -> Array:
        """Copies an array to the device, with its type."""

    def get(self, array: Array) -> npt.NDArray[Any]:
        """Copies an array to NumPy."""

    def can_hold(self, size_bytes: int) -> bool:
        """Whether data of this size may stay in the device's memory during a build."""

    def floats(self, array: Array) -> Array:
        """The array as ``float32``."""

    def ids(self, array: Array) -> Array:
        """The array as ``int32``: PyTorch computes little with ``uint32``, so -1 stands for no id."""

    def longs(self, array: Array) -> Array:
        """The array as ``int64``."""

    def arange(self, count: int) -> Array:
        """The numbers below ``count``, ``int64``."""

    def full(self, shape: tuple[int, ...], value: int) -> Array:
        """An array of ``int64`` with one value."""

    def no_ids(self, shape: tuple[int, ...]) -> Array:
        """An array of ``int32`` with -1 everywhere."""

    def smallest(self, values: Array, count: int) -> tuple[Array, Array]:
        """The least values of each row in their order, and where they are."""

    def first_true(self, mask: Array) -> Array:
        """Where the first true value of each row is; 0 if there is none."""

    def order(self, values: Array) -> Array:
        """The order that sorts the last axis, keeping equal values in their order."""

    def chosen(self, mask: Array, values: Array, other: float) -> Array:
        """The values where the mask is true, and one number elsewhere."""

    def joined(self, parts: list[Array], axis: int) -> Array:
        """The parts one after the other."""

    def along(self, values: Array, places: Array) -> Array:
        """The values at places along the last axis."""

    def swapped(self, array: Array) -> Array:
        """The array with its last two axes exchanged."""

    def sums(self, rows: Array, labels: Array, count: int) -> Array:
        """The sum of the rows with each label, ``float32``. No component of a row is above 256 in magnitude."""

    def counts(self, labels: Array, count: int) -> Array:
        """How many rows have each label."""


class OnCpu:
    """NumPy."""

    numbers = 1 << 20

    def put(self, array: npt.NDArray[Any]) -> Array:
        return array

    def get(self, array: Array) -> npt.NDArray[Any]:
        return np.asarray(array)

    def can_hold(self, size_bytes: int) -> bool:  # noqa: ARG002
        return False  # the vectors are in memory already, or in a file that is larger than it

    def floats(self, array: Array) -> Array:
        return array.astype(np.float32)

    def longs(self, array: Array) -> Array:
        return array.astype(np.int64)

    def ids(self, array: Array) -> Array:
        return array.astype(np.int32)

    def arange(self, count: int) -> Array:
        return np.arange(count)

    def full(self, shape: tuple[int, ...], value: int) -> Array:
        return np.full(shape, value, np.int64)

    def no_ids(self, shape: tuple[int, ...]) -> Array:
        return np.full(shape, -1, np.int32)

    def smallest(self, values: Array, count: int) -> tuple[Array, Array]:
        places = np.argpartition(values, count - 1, axis=-1)[..., :count]
        found = np.take_along_axis(values, places, -1)
        order = np.argsort(found, axis=-1, kind="stable")
        return np.take_along_axis(found, order, -1), np.take_along_axis(places, order, -1)

    def first_true(self, mask: Array) -> Array:
        return mask.argmax(-1)

    def order(self, values: Array) -> Array:
        return np.argsort(values, axis=-1, kind="stable")

    def chosen(self, mask: Array, values: Array, other: float) -> Array:
        return np.where(mask, values, np.asarray(other, values.dtype))

    def joined(self, parts: list[Array], axis: int) -> Array:
        return np.concatenate(parts, axis=axis)

    def along(self, values: Array, places: Array) -> Array:
        return np.take_along_axis(values, places, -1)

    def swapped(self, array: Array) -> Array:
        return array.swapaxes(-1, -2)

    def sums(self, rows: Array, labels: Array, count: int) -> Array:
        columns = [np.bincount(labels, weights=column, minlength=count) for column in rows.T]
        return np.stack(columns, axis=1).astype(np.float32)

    def counts(self, labels: Array, count: int) -> Array:
        return np.bincount(labels, minlength=count)


class OnGpu:
    """PyTorch on one GPU."""

    numbers = 1 << 28

    def __init__(self, device: str) -> None:
        """Takes the GPU.

        Args:
            device: ``cuda:N``.

        Raises:
            RefusedInput: There is no PyTorch, or it has no such GPU.
        """
        try:
            self._torch: Any = importlib.import_module("torch")
        except ImportError:
            remedy = "needs PyTorch, which is not installed: install torch, or use cpu"
            raise RefusedInput("device", device, remedy) from None
        if not self._torch.cuda.is_available() or int(device.partition(":")[2]) >= self._torch.cuda.device_count():
            raise RefusedInput("device", device, "is no GPU that PyTorch can use: use cpu, or see `forebay doctor`")
        self._device = device

    def put(self, array: npt.NDArray[Any]) -> Array:
        if array.dtype == np.uint32:
            array = array.astype(np.int64)
        if not (array.flags.c_contiguous and array.flags.writeable):  # PyTorch wants both
            array = array.copy()
        return self._torch.from_numpy(array).to(self._device)

    def get(self, array: Array) -> npt.NDArray[Any]:
        found: npt.NDArray[Any] = array.cpu().numpy()
        return found

    def can_hold(self, size_bytes: int) -> bool:
        free, _ = self._torch.cuda.mem_get_info(self._device)
        return size_bytes <= int(free) // 3

    def floats(self, array: Array) -> Array:
        return array.to(self._torch.float32)

    def longs(self, array: Array) -> Array:
        return array.to(self._torch.int64)

    def ids(self, array: Array) -> Array:
        return array.to(self._torch.int32)

    def arange(self, count: int) -> Array:
        return self._torch.arange(count, device=self._device)

    def full(self, shape: tuple[int, ...], value: int) -> Array:
        return self._torch.full(shape, value, dtype=self._torch.int64, device=self._device)

    def no_ids(self, shape: tuple[int, ...]) -> Array:
        return self._torch.full(shape, -1, dtype=self._torch.int32, device=self._device)

    def smallest(self, values: Array, count: int) -> tuple[Array, Array]:
        found, places = self._torch.topk(values, count, largest=False, sorted=True)
        return found, places

    def first_true(self, mask: Array) -> Array:
        return mask.to(self._torch.uint8).argmax(-1)

    def order(self, values: Array) -> Array:
        return self._torch.sort(values, dim=-1, stable=True).indices

    def chosen(self, mask: Array, values: Array, other: float) -> Array:
        return self._torch.where(mask, values, self._torch.full_like(values, other))

    def joined(self, parts: list[Array], axis: int) -> Array:
        return self._torch.cat(parts, dim=axis)

    def along(self, values: Array, places: Array) -> Array:
        return self._torch.gather(values, -1, places)

    def swapped(self, array: Array) -> Array:
        return array.transpose(-1, -2)

    def sums(self, rows: Array, labels: Array, count: int) -> Array:
        # Threads add in any order, and only sums of whole numbers do not depend on it.
        total = self.full((count, rows.shape[1]), 0)
        step = max(1, self.numbers // rows.shape[1])
        for first in range(0, len(rows), step):
            some = rows[first : first + step].to(self._torch.float64) * _FIXED_POINT
            total.index_add_(0, labels[first : first + step], some.round().to(self._torch.int64))
        return (total.to(self._torch.float64) / _FIXED_POINT).to(self._torch.float32)

    def counts(self, labels: Array, count: int) -> Array:
        return self._torch.bincount(labels, minlength=count)


def arrays_on(device: str) -> Arrays:
    """Returns where to compute.

    Args:
        device: ``cpu``, or ``cuda:N``.

    Raises:
        RefusedInput: It is neither, or there is no such GPU.
    """
    if device == "cpu":
        return OnCpu()
    kind, _, number = device.partition(":")
    if kind == "cuda" and number.isdecimal():
        return OnGpu(device)
    raise RefusedInput("device", device, "must be cpu or cuda:N, N being the number of a GPU")
