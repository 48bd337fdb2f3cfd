"""The memory of tensors that a piece of code keeps."""

import gc

import torch


class TensorMemory:
    """Bytes of the tensors that have come to life since this was made, those that share memory counted once.

    It keeps the tensors that were alive before, so that none of them, left by another test, is freed meanwhile.
    """

    def __init__(self):
        self._before = _alive()
        self._bytes = _bytes(self._before)

    def added(self):
        return _bytes(_alive()) - self._bytes


def _alive():
    gc.collect()
    return [thing for thing in gc.get_objects() if type(thing) is torch.Tensor and thing.layout == torch.strided]


def _bytes(tensors):
    return sum(dict(filter(None, map(_storage, tensors))).values())


def _storage(tensor):
    """Address and size; None for a tensor without memory of its own, which a transform has left behind."""
    try:
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.nbytes()
    except RuntimeError:
        return None
