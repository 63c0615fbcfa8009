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


class Arrays(Protocol):
    """Where a build computes."""

    rows: int
    """How many rows of some hundred numbers make a batch that the device is busy with."""

    def put(self, array: npt.NDArray[Any]) -> Array:
        """Copies an array to the device, with its type."""

    def get(self, array: Array) -> npt.NDArray[Any]:
        """Copies an array to NumPy."""

    def floats(self, array: Array) -> Array:
        """The array as ``float32``."""

    def longs(self, array: Array) -> Array:
        """The array as ``int64``."""

    def arange(self, count: int) -> Array:
        """The numbers below ``count``, ``int64``."""

    def full(self, shape: tuple[int, ...], value: int) -> Array:
        """An array of ``int64`` with one value."""

    def smallest(self, values: Array, count: int) -> tuple[Array, Array]:
        """The least values of each row in their order, and where they are."""

    def least(self, values: Array) -> Array:
        """Where the least value of each row is."""

    def first_true(self, mask: Array) -> Array:
        """Where the first true value of each row is; 0 if there is none."""

    def order(self, values: Array) -> Array:
        """The order that sorts the last axis, keeping equal values in their order."""

    def where(self, mask: Array) -> tuple[Array, Array]:
        """The rows and the columns of true values, row by row."""

    def joined(self, parts: list[Array], axis: int) -> Array:
        """The parts one after the other."""

    def first_of(self, labels: Array, count: int) -> Array:
        """Where the first of each label below ``count`` is in sorted labels, or would be."""

    def along(self, values: Array, places: Array) -> Array:
        """The values at places along the last axis."""

    def swapped(self, array: Array) -> Array:
        """The array with its last two axes exchanged."""

    def sums(self, rows: Array, labels: Array, count: int) -> Array:
        """The sum of the rows with each label: ``int64`` rows, so that their order does not matter."""

    def counts(self, labels: Array, count: int) -> Array:
        """How many rows have each label."""


class OnCpu:
    """NumPy."""

    rows = 512

    def put(self, array: npt.NDArray[Any]) -> Array:
        return array

    def get(self, array: Array) -> npt.NDArray[Any]:
        return np.asarray(array)

    def floats(self, array: Array) -> Array:
        return array.astype(np.float32)

    def longs(self, array: Array) -> Array:
        return array.astype(np.int64)

    def arange(self, count: int) -> Array:
        return np.arange(count)

    def full(self, shape: tuple[int, ...], value: int) -> Array:
        return np.full(shape, value, np.int64)

    def smallest(self, values: Array, count: int) -> tuple[Array, Array]:
        places = np.argpartition(values, count - 1, axis=-1)[..., :count]
        found = np.take_along_axis(values, places, -1)
        order = np.argsort(found, axis=-1, kind="stable")
        return np.take_along_axis(found, order, -1), np.take_along_axis(places, order, -1)

    def least(self, values: Array) -> Array:
        return values.argmin(-1)

    def first_true(self, mask: Array) -> Array:
        return mask.argmax(-1)

    def order(self, values: Array) -> Array:
        return np.argsort(values, axis=-1, kind="stable")

    def where(self, mask: Array) -> tuple[Array, Array]:
        rows, columns = np.nonzero(mask)
        return rows, columns

    def joined(self, parts: list[Array], axis: int) -> Array:
        return np.concatenate(parts, axis=axis)

    def first_of(self, labels: Array, count: int) -> Array:
        return np.searchsorted(labels, np.arange(count))

    def along(self, values: Array, places: Array) -> Array:
        return np.take_along_axis(values, places, -1)

    def swapped(self, array: Array) -> Array:
        return array.swapaxes(-1, -2)

    def sums(self, rows: Array, labels: Array, count: int) -> Array:
        total = np.zeros((count, rows.shape[1]), np.int64)
        order = np.argsort(labels, kind="stable")
        present, first = np.unique(labels[order], return_index=True)
        total[present] = np.add.reduceat(rows[order], first, axis=0)
        return total

    def counts(self, labels: Array, count: int) -> Array:
        return np.bincount(labels, minlength=count)


class OnGpu:
    """PyTorch on one GPU."""

    rows = 8192

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
        return self._torch.from_numpy(np.ascontiguousarray(array)).to(self._device)

    def get(self, array: Array) -> npt.NDArray[Any]:
        found: npt.NDArray[Any] = array.cpu().numpy()
        return found

    def floats(self, array: Array) -> Array:
        return array.to(self._torch.float32)

    def longs(self, array: Array) -> Array:
        return array.to(self._torch.int64)

    def arange(self, count: int) -> Array:
        return self._torch.arange(count, device=self._device)

    def full(self, shape: tuple[int, ...], value: int) -> Array:
        return self._torch.full(shape, value, dtype=self._torch.int64, device=self._device)

    def smallest(self, values: Array, count: int) -> tuple[Array, Array]:
        found, places = self._torch.topk(values, count, largest=False, sorted=True)
        return found, places

    def least(self, values: Array) -> Array:
        return values.argmin(-1)

    def first_true(self, mask: Array) -> Array:
        return mask.to(self._torch.uint8).argmax(-1)

    def order(self, values: Array) -> Array:
        return self._torch.sort(values, dim=-1, stable=True).indices

    def where(self, mask: Array) -> tuple[Array, Array]:
        rows, columns = self._torch.nonzero(mask, as_tuple=True)
        return rows, columns

    def joined(self, parts: list[Array], axis: int) -> Array:
        return self._torch.cat(parts, dim=axis)

    def first_of(self, labels: Array, count: int) -> Array:
        return self._torch.searchsorted(labels, self.arange(count))

    def along(self, values: Array, places: Array) -> Array:
        return self._torch.gather(values, -1, places)

    def swapped(self, array: Array) -> Array:
        return array.transpose(-1, -2)

    def sums(self, rows: Array, labels: Array, count: int) -> Array:
        total = self.full((count, rows.shape[1]), 0)
        return total.index_add_(0, labels, rows)

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
