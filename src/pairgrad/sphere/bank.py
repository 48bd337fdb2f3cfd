"""The class bank: per class a count and a sum of features, and the direction and concentration derived from them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import nn

from pairgrad.ground._torch_private import registries, version
from pairgrad.ground.checks import (
    DTYPES,
    assert_later,
    describe,
    device_or_none,
    generator_or_none,
    integer_at_least,
    one_of,
    optional_boolean,
    readable,
    real_number,
    wide_dtype,
)
from pairgrad.ground.devices import has_values, widened, widest
from pairgrad.sphere.inputs import check_order, check_statistics, checked_batch, looks
from pairgrad.sphere.resultant import ABOVE_ONE, ConcentrationRule
from pairgrad.sphere.saved import SavedOptions
from pairgrad.sphere.state import Classes, rates
from pairgrad.sphere.statistics import Batch, Statistics, absorbed, distinct, gathered, summed_by_class

UNSEEN = ("random", "uniform")
MEMORIES = ("cumulative", "two-epochs")
INITIAL_LENGTH = 0.9
_MOST = 2**60
_BLOCK = 65536  # classes whose initial directions are drawn, or whose norms are taken, at once
_WATCHED = ("sums", "counts", "_norms", "_concentrations", "_rates")
_LENGTH_TOL = 1e-5  # a mean of unit vectors exceeds 1 by rounding only: a few units of float32 per summand


class Touched(NamedTuple):
    """The states of the classes of a batch after each of its views. With `samples` there is an entry for every class that occurs; else entry t is about the
    class of sample t.
    """

    rows: torch.Tensor  # (V, T, p)
    rates: torch.Tensor  # (V, T), kappa / ||row||
    concentration: torch.Tensor  # (V, T)
    slots: torch.Tensor  # (T,), the first entry of the same class
    labels: torch.Tensor  # (T,)
    samples: torch.Tensor | None = None  # (B,), the entry of each sample's class; None: entry b
    distinct: bool = False  # known to have each class once
    every: bool = False  # entry k is about class k, for all classes

    def states(self) -> Classes:
        return Classes(self.rows, self.rates, self.concentration)

    def of_samples(self) -> Classes:
        """The states of the class of each sample, (V, B, p), (V, B), (V, B)."""
        if self.samples is None:
            return self.states()
        return Classes(*(tensor.index_select(1, self.samples) for tensor in self.states()))

    def rows_of_samples(self) -> torch.Tensor:
        """Of these the rows alone."""
        return self.rows if self.samples is None else self.rows.index_select(1, self.samples)


class ClassBank(SavedOptions):
    r"""Sums and counts of features per class, with \(\mu_j = S_j / \lVert S_j\rVert\) and \(\kappa_j\) from \(R_j = \lVert S_j\rVert / n_j\).

    The state is buffers, so `state_dict`, `.to()`, averaged copies and DDP's buffer broadcasts carry it. Sums are kept in two words of the
    bank's dtype, `sums` and `compensation`, and counts in float64, so that long runs do not drift (in float32 on a device without float64: exact up to
    2^24 samples of a class). An update changes the rows of the classes in the batch and nothing else, and on the CPU it reads no others if there are fewer
    samples than classes; directions, concentrations and the cached norms are derived. `load_state_dict` refuses a state that no update
    could have reached, and names the tensor and the class.

    Args:
        num_classes: K.
        dim: feature dimension p >= 2.
        estimator: of the concentrations: `"closed-form"` (p R / (1 - R^2), eq. released-state) or `"mle"` (the exact inverse of the Bessel ratio).
        cap: the largest concentration, 1e5 as in the public code.
        on_resultant_above_one: features that are not normalised can have R > 1. `"cap"` gives such a class the cap, as the public code does;
            `"error"` refuses the update; `"normalize"` scales every feature to length 1 before it is summed.
        unseen: a class without samples is `"random"`, a random direction with R = 0.9, as in the public code; or `"uniform"`, concentration 0.
            The first sample replaces it. R = 0 always means concentration 0 and no direction.
        small_samples: `"plain"`: one unit sample has R = 1 and so the cap, as in the public code (lem. finite-state says why); `"unbiased"`
            removes the 1/n that the sample itself contributes to R^2, and leaves a singleton at 0.
        decay: forget a class by this factor whenever it occurs in an update, an exponential window over its occurrences; None: never.
        memory: `"cumulative"`, one bank for the whole run; or `"two-epochs"`, a second set of sums that `start_epoch` moves to the first, so that
            scores see the previous epoch and the current one up to now.
        validate: True: check values on every device, at the cost of a synchronisation; None: check on the CPU, assert asynchronously elsewhere;
            False: never look at values.
        generator: for the random directions of unseen classes; give equal seeds on all ranks.
        device: of the buffers.
        dtype: of the sums, float32 (default) or float64. `.half()` and `.bfloat16()` move nothing to half precision: a half sum would stop
            growing after 2048 samples. `.double()` and `.float()` convert.

    Examples:
        >>> import torch, pairgrad as pg
        >>> bank = pg.ClassBank(num_classes=3, dim=4)
        >>> bank.update(torch.eye(4)[:2], torch.tensor([0, 0]))
        >>> bank.counts.tolist(), round(bank.resultant_length[0].item(), 4), round(bank.concentration[0].item(), 4)
        ([2.0, 0.0, 0.0], 0.7071, 5.6569)
    """

    sums: torch.Tensor
    compensation: torch.Tensor
    counts: torch.Tensor
    _norms: torch.Tensor
    _concentrations: torch.Tensor
    _rates: torch.Tensor

    def __init__(
        self,
        num_classes: int,
        dim: int,
        *,
        estimator: str = "closed-form",
        cap: float = 1e5,
        on_resultant_above_one: str = "cap",
        unseen: str = "random",
        small_samples: str = "plain",
        decay: float | None = None,
        memory: str = "cumulative",
        validate: bool | None = None,
        generator: torch.Generator | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.num_classes = integer_at_least("num_classes", num_classes, 1)
        self.dim = integer_at_least("dim", dim, 2, hint="a direction needs at least two coordinates")
        self.rule = ConcentrationRule(self.dim, estimator, cap, small_samples)
        self.on_resultant_above_one = one_of("on_resultant_above_one", on_resultant_above_one, ABOVE_ONE)
        self.unseen = one_of("unseen", unseen, UNSEEN)
        self.memory = one_of("memory", memory, MEMORIES)
        self.decay = None if decay is None else real_number("decay", decay, "a number between 0 and 1, or None", lambda d: 0 < d < 1)
        self.validate = optional_boolean("validate", validate)
        device = device_or_none("device", device)
        dtype = torch.float32 if dtype is None else wide_dtype("dtype", dtype, hint="half-precision sums stop growing at 2048")
        if self.num_classes * self.dim >= _MOST:
            raise ValueError(
                f"num_classes times dim must be below 2^60, the numbers that memory can hold, got num_classes = {describe(num_classes)} and dim = {self.dim}"
            )
        for prefix in ("", "next_") if memory == "two-epochs" else ("",):
            for name in ("sums", "compensation"):
                self.register_buffer(prefix + name, torch.zeros(self.num_classes, self.dim, device=device, dtype=dtype))
            self.register_buffer(prefix + "counts", torch.zeros(self.num_classes, device=device, dtype=widest(device)))
        self.register_buffer("_norms", torch.zeros(self.num_classes, device=device, dtype=widest(device)), persistent=False)
        for name in ("_concentrations", "_rates"):
            self.register_buffer(name, torch.zeros(self.num_classes, device=device, dtype=dtype), persistent=False)
        self._versions: tuple[int, ...] | None = None
        self.register_load_state_dict_pre_hook(ClassBank._before_loading)
        self.register_load_state_dict_post_hook(ClassBank._after_loading)
        self.reset(generator=generator)

    def update(self, features: torch.Tensor, labels: torch.Tensor) -> None:
        """Add a labelled batch, features (B, p) and labels (B,). Nothing is differentiated; on an error nothing has changed."""
        check_order(features, labels)
        features, labels = checked_batch(features, labels, self.num_classes, self.dim, self.sums, validate=self.validate, squared=True)
        if features.dim() != 2:
            raise ValueError(f"features must have shape (batch, dim={self.dim}), got {describe(features)}: call update once for each view")
        with self.updating() as state:
            state.absorb(features.detach().to(self.sums.dtype)[None], labels)

    def updating(self) -> AbstractContextManager[Updating]:
        """A context in which a loss takes views into the bank step by step; derived quantities are current when it begins and when it ends."""
        return _Open(self)

    def summed(self, views: torch.Tensor) -> torch.Tensor:
        """Features as they are summed."""
        return torch.nn.functional.normalize(views, dim=-1) if self.on_resultant_above_one == "normalize" else views

    def _refuse_above_one(self, lengths: torch.Tensor, labels: torch.Tensor) -> None:
        good = (lengths <= 1 + _LENGTH_TOL).all()
        if looks(lengths, self.validate):
            if not bool(good):
                worst = int(lengths.amax(0).argmax())
                raise ValueError(
                    f"features must have length at most 1 here: class {int(labels[worst])} would get the resultant length "
                    f"{lengths[:, worst].max():g}; normalise them, or choose on_resultant_above_one='normalize' or 'cap'"
                )
        elif not torch.compiler.is_compiling() and self.validate is not False:
            assert_later(good, "a class would get a resultant length above 1 (on_resultant_above_one='error')")

    @torch.no_grad()
    def reset(self, *, generator: torch.Generator | None = None) -> None:
        """Forget everything: counts 0, and the new initial directions for unseen classes."""
        generator_or_none("generator", generator)
        self._check_writable()
        for prefix in ("", "next_") if self.memory == "two-epochs" else ("",):
            self._reset(self._statistics(prefix), generator)
        self._versions = None
        self._refresh()

    def _reset(self, statistics: Statistics, generator: torch.Generator | None) -> None:
        for tensor in statistics:
            tensor.zero_()
        if self.unseen == "random" and has_values(statistics.high):
            device = statistics.high.device if generator is None else generator.device
            held, total = self._held()
            for start in range(0, total, _BLOCK):  # a block at a time: no second copy of a large bank
                stop = min(start + _BLOCK, total)
                draw = torch.randn(stop - start, self.dim, device=device, dtype=statistics.high.dtype, generator=generator)
                first, last = max(start, held), min(stop, held + self.num_classes)
                if first < last:
                    block = torch.nn.functional.normalize(draw[first - start : last - start], dim=1)
                    statistics.high[first - held : last - held].copy_(INITIAL_LENGTH * block)

    def _held(self) -> tuple[int, int]:
        """The first of the classes that are held here, and how many there are in all: the same directions are drawn, whoever holds them."""
        return 0, self.num_classes

    @torch.no_grad()
    def start_epoch(self, *, generator: torch.Generator | None = None) -> None:
        """With memory `"two-epochs"`: what was collected since the last call becomes the state that is scored, and collecting starts again."""
        if self.memory != "two-epochs":
            raise RuntimeError("start_epoch needs memory='two-epochs': this bank has one cumulative memory; use reset() to forget")
        generator_or_none("generator", generator)
        self._check_writable()
        for tensor, new in zip(self._statistics(), self._statistics("next_"), strict=True):
            tensor.copy_(new)
        self._reset(self._statistics("next_"), generator)
        self._versions = None
        self._refresh()

    def _check_writable(self) -> None:
        """torch refuses to write to an inference tensor after it has written: too late."""
        if torch.compiler.is_compiling() or torch.is_inference_mode_enabled():
            return
        if any(tensor.is_inference() for tensor in registries(self)[1].values()):
            raise RuntimeError(
                "the buffers of this bank are inference tensors, which change in inference mode only: write there, or use copy.deepcopy(bank)"
            )

    @property
    def resultant_length(self) -> torch.Tensor:
        """R = ||S|| / n, (K,) in the dtype of `counts`; of the initial direction where a class has no samples."""
        self._refresh()
        return self._lengths()

    @property
    def concentration(self) -> torch.Tensor:
        """(K,)"""
        self._refresh()
        return self._concentrations.clone()

    @property
    def mean(self) -> torch.Tensor:
        """S / n, (K, p)."""
        return self.sums / torch.where(self.counts > 0, self.counts, 1.0).to(self.sums.dtype)[:, None]

    @property
    def mean_direction(self) -> torch.Tensor:
        """(K, p); zeros where R = 0."""
        self._refresh()
        return self.sums / torch.where(self._norms > 0, self._norms, 1.0).to(self.sums.dtype)[:, None]

    def classes(self) -> Classes:
        """The state as the scores read it: the bank's own tensors, not copies."""
        self._refresh()
        return Updating(self).classes()

    def _refresh(self) -> None:
        """Derive norms and concentrations again if something else wrote to the buffers: loading, averaging, a broadcast."""
        if torch.compiler.is_compiling() or (self._versions is not None and self._versions == self._buffer_versions()):
            return
        if has_values(self.sums):
            self._derive()

    @torch.no_grad()
    def _derive(self) -> None:
        self._place_derived()
        for start in range(0, self.num_classes, _BLOCK):  # a block at a time: torch makes a float64 copy of what it is given
            rows = slice(start, start + _BLOCK)
            torch.linalg.vector_norm(self.sums[rows], dim=1, dtype=self._norms.dtype, out=self._norms[rows])
        concentration = self.rule(self._lengths(), self.counts)
        self._concentrations.copy_(concentration)
        self._rates.copy_(rates(concentration, self._norms))
        self._settle()

    def _place_derived(self) -> None:
        """Derived buffers where the sums are and in their dtype: loading with assign=True leaves them behind, inference mode locks them."""
        locked = self._norms.is_inference() and not torch.is_inference_mode_enabled()
        if locked or self._norms.device != self.sums.device or self._concentrations.dtype != self.sums.dtype:
            self._norms = torch.zeros(self.num_classes, device=self.sums.device, dtype=widest(self.sums.device))
            for name in ("_concentrations", "_rates"):
                setattr(self, name, torch.zeros(self.num_classes, device=self.sums.device, dtype=self.sums.dtype))

    def _lengths(self) -> torch.Tensor:
        return self._norms / torch.where(self.counts > 0, self.counts, 1.0)

    def _settle(self) -> None:
        """Note that the derived quantities belong to the buffers as they are now."""
        if not torch.compiler.is_compiling():
            self._versions = self._buffer_versions()

    def _buffer_versions(self) -> tuple[int, ...] | None:
        buffers, versions = registries(self)[1], []
        for name in _WATCHED:
            tensor = buffers[name]
            if tensor.is_inference():
                return None
            versions += (id(tensor), version(tensor))
        return tuple(versions)

    def _statistics(self, prefix: str = "") -> Statistics:
        return Statistics(getattr(self, prefix + "sums"), getattr(self, prefix + "compensation"), getattr(self, prefix + "counts"))

    @staticmethod
    def _before_loading(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
        assert isinstance(module, ClassBank)
        module._own_rows(state, prefix)
        if module.validate is False:
            return
        for part in ("", "next_") if module.memory == "two-epochs" else ("",):
            own, names = module._statistics(part), (f"{part}sums", f"{part}compensation", f"{part}counts")
            new = [state.get(prefix + name, old) for name, old in zip(names, own, strict=True)]
            if all(isinstance(tensor, torch.Tensor) and tensor.shape == old.shape for tensor, old in zip(new, own, strict=True)):
                new = [tensor.detach().to(old.dtype) for tensor, old in zip(new, own, strict=True)]
                if all(map(has_values, new)):
                    check_statistics(*new, names=names, first=module._held()[0])

    def _own_rows(self, state: dict[str, Any], prefix: str) -> None:
        """Reduce the tensors of a state to the classes that are held here."""

    @staticmethod
    def _after_loading(module: nn.Module, _keys: Any) -> None:
        assert isinstance(module, ClassBank)
        module._versions = None
        module._refresh()  # at once: a compiled region cannot find out

    def __getstate__(self) -> dict[str, Any]:
        """A copy keeps what is derived, where that is current: deriving it again could round differently."""
        current = self._versions is not None and self._versions == self._buffer_versions()
        return {**self.__dict__, "_versions": () if current else None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if self._versions is not None:
            self._settle()

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> ClassBank:
        """Counts and norms have the widest dtype of the device, sums float32 or float64; a conversion splits high + low again and loses nothing."""
        before = dict(self.named_buffers(recurse=False))
        widest_here = {id(tensor) for name, tensor in before.items() if name.endswith(("counts", "_norms"))}

        def kept(tensor: torch.Tensor) -> torch.Tensor:
            if id(tensor) in widest_here:
                place = fn(tensor.new_zeros(0, dtype=torch.float32)).device  # float64 cannot even be sent to some
                dtype = widest(place)
                given = tensor if dtype == torch.float64 else tensor.to(dtype)
                new = fn(given)
                return (new if new.dtype in (given.dtype, dtype) else given.to(new.device)).to(dtype)
            new = fn(tensor)
            return new if new.dtype in DTYPES or not tensor.is_floating_point() else tensor.to(new.device)

        super()._apply(kept, recurse)
        for name, old in before.items():
            new = getattr(self, name)
            if name.endswith("sums") and new.dtype != old.dtype and has_values(old):
                low = name.replace("sums", "compensation")
                high, rest = widened(old), widened(before[low])
                whole = (high + rest).to(new.dtype)
                rest = high - whole.double() + rest
                setattr(self, name, whole.to(new.device))
                setattr(self, low, rest.to(dtype=new.dtype, device=new.device))
        self._versions = None
        self._refresh()
        return self

    def saved_options(self) -> dict[str, Any]:
        rule = self.rule
        return {
            "estimator": rule.estimator,
            "cap": rule.cap,
            "small_samples": rule.small_samples,
            "on_resultant_above_one": self.on_resultant_above_one,
            "decay": self.decay,
        }

    def extra_repr(self) -> str:
        options = [f"{self.num_classes}, {self.dim}, estimator={self.rule.estimator!r}, cap={self.rule.cap:g}"]
        for name, default in (("on_resultant_above_one", "cap"), ("unseen", "random"), ("decay", None), ("memory", "cumulative")):
            if getattr(self, name) != default:
                options.append(f"{name}={getattr(self, name)!r}")
        if self.rule.small_samples != "plain":
            options.append(f"small_samples={self.rule.small_samples!r}")
        return ", ".join(options)


class Updating:
    """A class bank that is being updated, from `ClassBank.updating`. Traceable by torch.compile."""

    def __init__(self, bank: ClassBank) -> None:
        self.bank = bank

    def classes(self) -> Classes:
        """The state after what has been absorbed: the bank's own tensors, not copies."""
        return Classes(self.bank.sums, self.bank._rates, self.bank._concentrations)

    def derived(self) -> dict[str, torch.Tensor]:
        """What the bank derived from its sums, row by row as they changed, by name: the bank's own tensors. A run that restores them resumes bit by bit."""
        return {name: getattr(self.bank, name) for name in ("_norms", "_concentrations", "_rates")}

    def buffers(self) -> tuple[Statistics, Statistics | None, tuple[torch.Tensor, ...]]:
        """What an update writes, to be written in another way: the sums, those of the next epoch if the bank has them, and norms, concentrations, rates."""
        bank = self.bank
        bank._check_writable()
        following = bank._statistics("next_") if bank.memory == "two-epochs" else None
        return bank._statistics(), following, (bank._norms, bank._concentrations, bank._rates)

    def absorb(self, views: torch.Tensor, labels: torch.Tensor) -> Touched:
        """Take in views (V, B, p), already checked, one after the other; returns the states the batch's classes had after each of them."""
        bank = self.bank
        with torch.no_grad():
            views = bank.summed(views)
            if not readable(views):
                return self._absorbed(gathered(views, labels))
            # an error speaks of the classes in the batch, and labels that were not looked at may lie outside
            if bank.num_classes <= labels.shape[0] and bank.on_resultant_above_one != "error" and bank.validate is not False:
                return self._absorbed(summed_by_class(views, labels, bank.num_classes))
            return self._absorbed(distinct(views, labels))

    def absorb_batch(self, batch: Batch) -> Touched:
        """`absorb` of views that are summed by class already."""
        with torch.no_grad():
            return self._absorbed(batch)

    def _absorbed(self, batch: Batch) -> Touched:
        bank = self.bank
        bank._check_writable()
        labels, number, current = batch.labels, len(batch.totals), bank._statistics()
        rows = current if batch.every else current.rows(labels)
        together = number > 1 and not torch.compiler.is_compiling()
        high = rows.high.new_empty(number, *rows.high.shape) if together else None
        after = absorbed(rows, batch, bank.decay, high, current if batch.every else None)
        if high is None:
            high = torch.stack([rows.high for rows in after]) if number > 1 else after[0].high[None]
            high = high.clone() if batch.every else high  # what is returned stays as it is when the bank is updated again
        norms = torch.linalg.vector_norm(high, dim=-1, dtype=widest(high.device))
        counts = torch.stack([rows.counts for rows in after]) if number > 1 else after[0].counts[None]
        lengths = norms / (counts if batch.complete else counts.masked_fill(counts <= 0, 1.0))
        if bank.on_resultant_above_one == "error":
            bank._refuse_above_one(lengths, labels)
        concentration = bank.rule(lengths, counts)
        rate = rates(concentration, norms).to(high.dtype)
        concentration = concentration.to(high.dtype)
        following = bank._statistics("next_") if bank.memory == "two-epochs" else None
        whole = batch.merged() if bank.decay is None else batch  # what it is between the views is not used
        derived = (bank._norms, norms), (bank._concentrations, concentration), (bank._rates, rate)
        if batch.every:
            if after[-1].high is not current.high:
                current.high.copy_(after[-1].high)
            if following is not None:
                absorbed(following, whole, bank.decay, last=following)
            for tensor, new in derived:
                tensor.copy_(new[-1])
        else:
            current.write(labels, after[-1])
            if following is not None:
                following.write(labels, absorbed(following.rows(labels), whole, bank.decay)[-1])
            for tensor, new in derived:
                tensor.index_copy_(0, labels, new[-1])
        return Touched(high, rate, concentration, batch.slots, labels, batch.samples, batch.samples is not None, batch.every)


class _Open:
    """The context of `ClassBank.updating`."""

    def __init__(self, bank: ClassBank) -> None:
        self.bank = bank

    def __enter__(self) -> Updating:
        self.bank._refresh()
        return Updating(self.bank)

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if kind is None:
            self.bank._settle()
