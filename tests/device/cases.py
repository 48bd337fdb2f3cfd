"""Every public callable of the library, called with tensors on the device. Run under `recording.Recorder`; `run_cases` runs them all.

A case makes what it needs, calls `built()`, and takes a step. What it does before `built()` is construction, which may copy to the device.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import normalize

import pairgrad as pg

DEVICE = "cuda"
B, K, P = 4, 20, 32  # P: "paired" without a shift in both dtypes; two dimensions have one
Built = Callable[[], None]
Case = Callable[[Built], Any]
CASES: dict[str, Case] = {}


def case(name: str, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function under a name, with these arguments after `built`; it can be registered several times."""

    def keep(function: Callable[..., Any]) -> Callable[..., Any]:
        assert name not in CASES, name
        CASES[name] = lambda built: function(built, **options)
        return function

    return keep


def features(*shape: int, dtype: torch.dtype = torch.float32, learn: bool = True) -> torch.Tensor:
    return torch.randn(*(shape or (B, P)), device=DEVICE, dtype=dtype).requires_grad_(learn)


def labels(count: int = B, classes: int = K) -> torch.Tensor:
    return torch.randint(0, classes, (count,), device=DEVICE)


def units(*shape: int, learn: bool = False, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return normalize(features(*shape, learn=learn, dtype=dtype), dim=-1)


def state(learn: bool = False, dim: int = P, dtype: torch.dtype = torch.float32) -> pg.ClassState:
    return pg.ClassState(features(K, dim, learn=learn, dtype=dtype), torch.rand(K, device=DEVICE, dtype=dtype).requires_grad_(learn))


def twice(loss: torch.Tensor, *inputs: torch.Tensor) -> None:
    """First and second derivatives."""
    gradients = torch.autograd.grad(loss.sum(), inputs, create_graph=True)
    torch.stack([gradient.square().sum() for gradient in gradients]).sum().backward()
    assert all(tensor.grad is not None and tensor.grad.device.type == DEVICE for tensor in inputs)


def backward(loss: torch.Tensor, *inputs: torch.Tensor) -> None:
    assert loss.device.type == DEVICE
    loss.sum().backward()
    assert all(tensor.grad is not None and tensor.grad.device.type == DEVICE for tensor in inputs)


def all_of(*_: Any) -> None:
    """Several calls or properties, for what they do to the device."""


def read(owner: Any, *names: str) -> None:
    """Properties, on the device if they are tensors."""
    for name in names:
        value = getattr(owner, name)
        assert not isinstance(value, torch.Tensor) or value.device.type == DEVICE, name


ONE = ("value", "slope", "curvature", "derivative", "defect", "complement", "deficit", "legendre")
TWO = ("difference", "secant", "increment", "bregman")


def potential_case(built: Built, realization: str, method: str, dim: int = P) -> None:
    pot = pg.potential(dim, realization)
    a, b = (torch.rand(3, device=DEVICE).requires_grad_() for _ in range(2))
    built()
    call = getattr(pot, method)
    if method == "pair":
        pair = call(a)
        return backward(pair.value + pair.slope, a)
    arguments = (a, b) if method in TWO else (a,)
    return (twice if realization == "paired" else backward)(call(*arguments), *arguments)


for _realization in pg.realizations():
    if _realization.name == "reference":
        continue  # NumPy and mpmath, on the host
    for _method in (*ONE, *TWO, "pair"):
        _dim = P if _realization.name in ("paired", "arfr") else 8  # operations of a recurrence grow with the dimension
        case(f"potential {_realization.name} {_method}", realization=_realization.name, method=_method, dim=_dim)(potential_case)
for _method in ("value", "increment"):
    case(f"potential paired in two dimensions {_method}", realization="paired", method=_method, dim=2)(potential_case)


@case("potential half precision", dtype=torch.bfloat16)
@case("potential float64", dtype=torch.float64)
def _(built: Built, dtype: torch.dtype) -> None:
    pot, x = pg.potential(P), torch.rand(3, device=DEVICE, dtype=dtype).requires_grad_()
    built()
    backward(pot.value(x), x)


@case("potential concentration", method="newton")
@case("potential concentration closed form", method="closed-form")
def _(built: Built, method: str) -> None:
    pot, r = pg.potential(P), torch.rand(3, device=DEVICE).requires_grad_()
    built()
    twice(pot.concentration(r, method), r)
    if method == "newton":
        pot.concentration(r, complement=(1 - r).detach())


@case("ClassBank")
@case("ClassBank unseen uniform", unseen="uniform")
@case("ClassBank mle", estimator="mle")
@case("ClassBank unbiased", small_samples="unbiased")
@case("ClassBank decay", decay=0.9)
@case("ClassBank two epochs", memory="two-epochs", decay=0.9)
@case("ClassBank normalize", on_resultant_above_one="normalize")
@case("ClassBank error above one", on_resultant_above_one="error")
@case("ClassBank float64", dtype=torch.float64)
@case("ClassBank validate=False", validate=False)
@case("ClassBank validate=True", validate=True)
def bank_case(built: Built, **options: Any) -> None:
    bank = pg.ClassBank(K, P, device=DEVICE, **options)
    x, y = features(learn=False), labels()
    built()
    bank.update(x, y)
    read(bank, "concentration", "mean", "mean_direction", "resultant_length")
    assert bank.classes().rows.device.type == DEVICE
    bank.summed(x)
    with bank.updating() as opened:
        opened.absorb(x[None], y)
    if bank.memory == "two-epochs":
        bank.start_epoch()
    bank.reset()


@case("ClassBank features of another dtype", dtype=torch.float64)
@case("ClassBank half features", dtype=torch.float16)
def _(built: Built, dtype: torch.dtype) -> None:
    bank, x, y = pg.ClassBank(K, P, device=DEVICE), features(dtype=dtype, learn=False), labels()
    built()
    bank.update(x, y)


@case("ClassBank moved, copied, saved and loaded")
def _(built: Built) -> None:
    pg.ClassBank(K, P, generator=torch.Generator().manual_seed(0), device=DEVICE)
    bank = pg.ClassBank(K, P).to(DEVICE)
    again = copy.deepcopy(bank)
    saved = bank.state_dict()
    built()
    bank.double().float().half()
    again.load_state_dict(saved)
    again.set_extra_state(again.get_extra_state())
    all_of(again.extra_repr(), again.saved_options())
    again.update(features(learn=False), labels())


@case("empty batches")
def _(built: Built) -> None:
    bank, loss, classes = pg.ClassBank(K, P, device=DEVICE), pg.ProCoLoss(K, P, device=DEVICE, reduction="none"), state()
    x, y = features(2, 0, P), labels(0)
    built()
    bank.update(x[0].detach(), y)
    loss(x, y)
    pg.vmf_cross_entropy(x[0], y, classes, reduction="none")


@case("ClassBank to the host")
def _(built: Built) -> None:
    bank = pg.ClassBank(K, P, device=DEVICE)
    built()
    bank.cpu()


@case("ClassState")
def _(built: Built) -> None:
    made = state()
    built()
    assert made.classes().rates.device.type == DEVICE
    assert (made.num_classes, made.dim) == (K, P)


@case("vmf_scores")
@case("vmf_scores expanded", geometry="expanded")
@case("vmf_scores float64", geometry_dtype=torch.float64)
@case("vmf_scores float64 scalars", scalar_dtype=torch.float64)
@case("vmf_scores arfr", realization="arfr")
@case("vmf_scores validate=True", validate=True)
def _(built: Built, **options: Any) -> None:
    x, classes = features(), state(learn=True)
    built()
    backward(pg.vmf_scores(x, classes, 0.2, **options), x, classes.mean_direction, classes.concentration)


@case("vmf_scores in two dimensions")
def _(built: Built) -> None:
    x, classes = features(B, 2), state(dim=2)
    built()
    twice(pg.vmf_scores(x, classes), x)


@case("vmf_cross_entropy")
@case("vmf_cross_entropy arfr", realization="arfr")
@case("vmf_cross_entropy original", realization="original")
@case("vmf_cross_entropy consistent", realization="consistent")
@case("vmf_cross_entropy none", reduction="none")
@case("vmf_cross_entropy sum", reduction="sum")
@case("vmf_cross_entropy bounded", max_norm=1.0)
@case("vmf_cross_entropy tiled", tile=8, max_norm=1.0)
@case("vmf_cross_entropy tiled without a bound", tile=8)
@case("vmf_cross_entropy smoothed", label_smoothing=0.1)
@case("vmf_cross_entropy smoothed and tiled", label_smoothing=0.1, tile=8)
@case("vmf_cross_entropy ignoring a label", ignore_index=3)
@case("vmf_cross_entropy expanded", geometry="expanded")
@case("vmf_cross_entropy float64", geometry_dtype=torch.float64)
@case("vmf_cross_entropy float64 scalars", scalar_dtype=torch.float64)
@case("vmf_cross_entropy validate=False", validate=False)
@case("vmf_cross_entropy validate=True", validate=True)
@case("vmf_cross_entropy triton", execution="triton")
@case("vmf_cross_entropy auto, smoothed", execution="auto", label_smoothing=0.1)
def cross_entropy_case(built: Built, **options: Any) -> None:
    x, y, classes = features(), labels(), state()
    built()
    backward(pg.vmf_cross_entropy(x, y, classes, **options), x)


@case("vmf_cross_entropy prior and weight")
def _(built: Built) -> None:
    x, y, classes, prior, weight = features(), labels(), state(), torch.randn(K, device=DEVICE), torch.rand(K, device=DEVICE)
    built()
    backward(pg.vmf_cross_entropy(x, y, classes, log_prior=prior, weight=weight), x)


@case("vmf_cross_entropy probabilities")
def _(built: Built) -> None:
    x, y, classes = features(), torch.rand(B, K, device=DEVICE), state()
    built()
    backward(pg.vmf_cross_entropy(x, y, classes), x)


@case("vmf_cross_entropy half features")
def _(built: Built) -> None:
    x, y, classes = features(dtype=torch.bfloat16), labels(), state()
    built()
    backward(pg.vmf_cross_entropy(x, y, classes), x)


@case("vmf_cross_entropy against a bank")
def _(built: Built) -> None:
    x, y, bank = features(), labels(), pg.ClassBank(K, P, device=DEVICE)
    built()
    backward(pg.vmf_cross_entropy(x, y, bank), x)


@case("vmf_cross_entropy learned")
def _(built: Built) -> None:
    x, y, classes = features(), labels(), state(learn=True)
    tau, prior = torch.full((), 0.1, device=DEVICE).requires_grad_(), torch.randn(K, device=DEVICE).requires_grad_()
    built()
    loss = pg.vmf_cross_entropy(x, y, classes, tau, prior)
    backward(loss, x, classes.mean_direction, classes.concentration, tau, prior)


@case("vmf_cross_entropy second derivative")
def _(built: Built) -> None:
    x, y, classes = features(), labels(), state()
    built()
    twice(pg.vmf_cross_entropy(x, y, classes), x)


def loss_step(loss: Any, *others: Any, views: int = 2, dtype: torch.dtype = torch.float32) -> None:
    x = features(views, B, P, dtype=dtype)
    backward(loss(x, labels(), *others), x)


@case("ProCoLoss")
@case("ProCoLoss prior", class_counts=[5.0] * K)
@case("ProCoLoss a class without samples", class_counts=[0.0, *[5.0] * (K - 1)])
@case("ProCoLoss not normalized", normalize=False)
@case("ProCoLoss before update", score="before-update")
@case("ProCoLoss none", reduction="none")
@case("ProCoLoss arfr", realization="arfr")
@case("ProCoLoss original", realization="original")
@case("ProCoLoss expanded", geometry="expanded")
@case("ProCoLoss float64 scalars", scalar_dtype=torch.float64)
@case("ProCoLoss mle", estimator="mle")
@case("ProCoLoss float64", dtype=torch.float64)
@case("ProCoLoss validate=True", validate=True, class_counts=[5.0] * K)
@case("ProCoLoss triton", execution="triton", class_counts=[5.0] * K)
@case("ProCoLoss triton, before update, none", execution="triton", score="before-update", reduction="none", memory="two-epochs")
@case("ProCoLoss triton, mle", execution="triton", estimator="mle")
def proco_case(built: Built, **options: Any) -> None:
    loss = pg.ProCoLoss(K, P, device=DEVICE, **options)
    built()
    for _ in range(2):
        loss_step(loss)


@case("ProCoLoss the whole objective")
def _(built: Built) -> None:
    loss = pg.ProCoLoss(K, P, device=DEVICE, class_counts=[5.0] * K, memory="two-epochs")
    logits = features(B, K)
    built()
    loss.start_epoch()
    loss_step(loss, logits, dtype=torch.bfloat16)
    loss.temperature = 0.2
    x, y = features(2, B, P), labels()
    backward(loss.rows([x[0], x[1]], y), x)
    loss.step(x, y)
    loss.with_terms(x, y, lambda: [logits.mean()])


@case("ProCoLoss evaluation")
def _(built: Built) -> None:
    loss = pg.ProCoLoss(K, P, device=DEVICE).eval()
    x, soft = features(), torch.rand(B, K, device=DEVICE)
    built()
    loss_step(loss)
    backward(loss.soft(x, soft), x)
    loss.scores(x)


@case("ProCoLoss second derivative")
def _(built: Built) -> None:
    loss, x, y = pg.ProCoLoss(K, P, device=DEVICE), features(2, B, P), labels()
    built()
    twice(loss(x, y), x)


@case("ProCoLoss saved and loaded")
def _(built: Built) -> None:
    loss = pg.ProCoLoss(K, P, device=DEVICE)
    loss.load_state_dict(loss.state_dict())
    built()
    loss_step(loss)


@case("ProCoLoss moved and copied")
def _(built: Built) -> None:
    loss = pg.ProCoLoss(K, P, class_counts=[5.0] * K).to(DEVICE)
    loss = copy.deepcopy(loss)
    loss.set_extra_state(loss.get_extra_state())
    loss.set_prior([2.0] * K)
    all_of(loss.extra_repr(), loss.potential, loss.saved_options())
    loss.use(loss.bank, loss.strategy)
    built()
    loss_step(loss)


@case("PATTLoss")
def _(built: Built) -> None:
    loss = pg.PATTLoss(K, P, class_counts=[5.0] * K, device=DEVICE)
    logits, outliers = features(B, K), features(3, K)
    loss.set_prior([3.0] * K)
    built()
    x, y = features(2, B, P), labels()
    backward(loss(x, y, logits), x, logits)
    loss.terms(x, y, logits, outliers)
    all_of(loss.scores(x[0]), loss.bank, loss.extra_repr())


@case("LogitAdjust", adjust="LogitAdjust")
@case("TemperatureLogitAdjust", adjust="TemperatureLogitAdjust")
@case("LogitAdjust with options", adjust="LogitAdjust", weight=[1.0] * K, label_smoothing=0.1, ignore_index=3)
def _(built: Built, adjust: str, **options: Any) -> None:
    loss = getattr(pg, adjust)([5.0] * K, **options).to(DEVICE)
    logits, y, soft = features(B, K), labels(), torch.rand(B, K, device=DEVICE)
    built()
    backward(loss(logits, y), logits)
    if "ignore_index" not in options:
        backward(loss(logits, soft), logits)
    all_of(loss.adjusted(logits), loss.extra_repr(), loss.num_classes)


@case("OutlierExposure")
def _(built: Built) -> None:
    loss, logits = pg.OutlierExposure(), features(B, K)
    built()
    backward(loss(logits), logits)
    loss.extra_repr()


@case("VMFClassifier")
@case("VMFClassifier density", score="density")
@case("VMFClassifier learned temperature", learn_temperature=True)
def _(built: Built, **options: Any) -> None:
    head = pg.VMFClassifier(K, P, device=DEVICE, **options)
    x, y = features(), labels()
    built()
    backward(head(x), x)
    backward(head.loss(x, y, label_smoothing=0.1), x)
    all_of(head.temperature, head.concentration, head.state, head.extra_repr())


@case("VMFRegressionLoss")
@case("VMFRegressionLoss concentration", concentration=True)
@case("VMFRegressionLoss number", concentration=7.0)
def _(built: Built, concentration: Any = None) -> None:
    loss, x, target = pg.VMFRegressionLoss(P), features(), units()
    kappa = torch.rand(B, device=DEVICE).requires_grad_() if concentration is True else concentration
    built()
    learned = [x, kappa] if concentration is True else [x]
    (backward if concentration else twice)(loss(x, target, kappa), *learned)
    loss.extra_repr()


@case("update_field")
def _(built: Built) -> None:
    x, y, classes = features(2, 6, learn=False), labels(2), state(dim=6)
    built()
    field = pg.update_field(x, y, classes, realization="scott")
    read(field, *(name for name, kind in vars(type(field)).items() if isinstance(kind, property)))
    field = field.with_strength(0.5)
    all_of(field.antisymmetry(), field.antisymmetry_along(x, x), field.differentiated_along(x, x))
    all_of(field.differentiated_antisymmetry(), field.jacobian(), field.supplied_at(x))


def vmf(kappa: torch.Tensor | None = None, dim: int = P, dtype: torch.dtype = torch.float32, **options: Any) -> pg.VonMisesFisher:
    return pg.VonMisesFisher(units(4, dim, dtype=dtype), torch.rand(4, device=DEVICE, dtype=dtype) if kappa is None else kappa, **options)


@case("VonMisesFisher rsample")
@case("VonMisesFisher rsample in two dimensions", dim=2)
@case("VonMisesFisher rsample in three dimensions", dim=3)
@case("VonMisesFisher rsample float64", dtype=torch.float64)
def _(built: Built, dim: int = P, dtype: torch.dtype = torch.float32) -> None:
    kappa = torch.rand(4, device=DEVICE, dtype=dtype).requires_grad_()
    built()
    made = vmf(kappa, dim, dtype)
    backward(made.rsample((3,)), kappa)
    made.sample()


@case("VonMisesFisher")
def _(built: Built) -> None:
    mu, x, kappa = units(4, P), units(4, P), torch.rand(4, device=DEVICE).requires_grad_()
    built()
    made = pg.VonMisesFisher(mu, 5.0)
    made.log_prob(x)
    made = pg.VonMisesFisher(mu, kappa)
    twice(made.log_prob(x), kappa)
    all_of(made.entropy(), made.mean, made.mode, made.variance, made.covariance, made.covariance_matrix, made.dim)
    made.cross_entropy(vmf())
    torch.distributions.kl_divergence(made, vmf())
    torch.distributions.kl_divergence(made, pg.HypersphericalUniform(P, device=DEVICE))
    made.expand((2, 4)).sample()


@case("VonMisesFisher validate_args=True")
def _(built: Built) -> None:
    built()
    vmf(validate_args=True).log_prob(units(4, P))


@case("VonMisesFisher fit", estimator="mle")
@case("VonMisesFisher fit sra", estimator="sra")
@case("VonMisesFisher fit unbiased", estimator="unbiased")
def _(built: Built, estimator: str) -> None:
    x, weights = units(5, P), torch.rand(5, device=DEVICE)
    built()
    fitted = pg.VonMisesFisher.fit(x, weights, estimator=estimator)
    assert fitted.estimate is not None
    assert fitted.concentration.device.type == fitted.estimate.direction_error.device.type == DEVICE


@case("HypersphericalUniform")
def _(built: Built) -> None:
    x = units(4, P)
    built()
    made = pg.HypersphericalUniform(P, device=DEVICE)
    all_of(made.sample((2,)), made.rsample((2,)), made.log_prob(x), made.entropy(), made.mean, made.variance, made.covariance)
    made.expand((3,)).sample()


@case("distributed losses in one process")
def _(built: Built) -> None:
    loss = pg.distributed.distribute(pg.ProCoLoss(K, P, unseen="uniform", class_counts=[5.0] * K, device=DEVICE))
    built()
    loss_step(loss)


@case("distributed cross entropy in one process")
def _(built: Built) -> None:
    layout = pg.distributed.Layout(K)
    known = state(learn=True)
    classes = pg.distributed.ShardedClassState(known.mean_direction, known.concentration, layout)
    x, y = features(), labels()
    built()
    backward(pg.distributed.vmf_cross_entropy(x, y, classes), x, classes.mean_direction)
    best, which = pg.distributed.top_classes(x.detach(), classes, 3)
    assert best.device.type == which.device.type == DEVICE
    all_of(classes.classes(), classes.dim, classes.num_classes)


@case("DistributedClassBank in one process")
def _(built: Built) -> None:
    bank = pg.distributed.DistributedClassBank(
        pg.distributed.Layout(K), pg.ClassBank(K, P, memory="two-epochs", unseen="uniform", device=DEVICE)
    )
    x, y = features(learn=False), labels()
    bank.set_extra_state(bank.get_extra_state())
    all_of(bank.saved_options(), bank.extra_repr(), bank.whole)
    built()
    bank.update(x, y)
    all_of(bank.classes(), bank.concentration, bank.mean, bank.mean_direction, bank.resultant_length, bank.summed(x))
    with bank.updating():
        pass
    all_of(bank.start_epoch(), bank.reset())


@case("DistributedClassBank compared")
def _(built: Built) -> None:
    bank = pg.distributed.DistributedClassBank(pg.distributed.Layout(K), pg.ClassBank(K, P, unseen="uniform", device=DEVICE))
    built()
    all_of(bank.check_undisturbed(), bank.compare_replicas())


@case("compat.proco")
def _(built: Built) -> None:
    loss = pg.compat.proco.ProCoLoss(P, 0.1, K, device=DEVICE)
    adjust = pg.compat.proco.LogitAdjust([5.0] * K).to(DEVICE)
    loss.cal_weight_for_classes([5.0] * K)
    x, y, logits = features(), labels(), features(B, K)
    loss.loss(x, y, [5.0] * K)
    built()
    backward(loss(x, y), x)
    backward(loss.loss(x, y), x)
    backward(adjust(logits, y), logits)
    for estimator in (loss.estimator, loss.estimator_old):
        read(estimator, "Ave", "Amount", "kappa", "logc")
    all_of(loss.reload_memory(), read(loss, "temperature", "bank"))


@case("compat conventions")
def _(built: Built) -> None:
    loss = pg.ProCoLoss(K, P, device=DEVICE)
    learning, timm = pg.compat.MetricLearningLoss(loss, views=2), pg.compat.TimmLoss(loss)
    x, y, soft = features(), labels(), torch.rand(B, K, device=DEVICE)
    built()
    backward(learning(torch.cat([x, x]), y.repeat(2)), x)
    backward(timm(x, y), x)
    backward(timm(x, soft), x)


@case("ood scores")
def _(built: Built) -> None:
    logits, prior = features(B, K), torch.randn(K, device=DEVICE)
    built()
    for score in (pg.ood.msp, pg.ood.energy, pg.ood.max_logit, pg.ood.vmf):
        assert score(logits).device.type == DEVICE
    pg.ood.vmf(logits, prior)


@case("ood.FeatureCalibration")
def _(built: Built) -> None:
    head = torch.nn.Linear(P, K, device=DEVICE)
    calibration = pg.ood.FeatureCalibration.of(head, [1.0] * K)
    pg.ood.FeatureCalibration(head.weight, head.bias, [1.0] * K)
    x, y = features(learn=False), labels()
    built()
    calibration.update(x, y, x)
    calibration.fit([(x, y, x)])
    calibration.finish()
    all_of(calibration.logits(x), calibration.score(x), calibration(x), calibration.extra_repr())
    read(calibration, "fitted", "dim", "num_classes")
    calibration.reset()


@case("certify")
def _(built: Built) -> None:
    x, y, classes = features(learn=False), labels(), state()
    built()
    pg.certify(x, y, classes)


@case("record and monitor")
def _(built: Built) -> None:
    loss, x = pg.ProCoLoss(K, P, device=DEVICE), features(2, B, P)
    built()
    with pg.record(states=2):
        backward(loss(x, labels()), x)
    monitor = pg.CoherenceMonitor(every=1)
    monitor.start()
    backward(loss(x, labels()), x)
    monitor.step()
    monitor.stop()


@case("audit")
def _(built: Built) -> None:
    x = torch.rand(3, device=DEVICE)
    built()
    pg.audit(lambda x: (x * x).sum(), x, effort="quick", seconds=1.0)


@case("VMFMixture")
def _(built: Built) -> None:
    mixture, x = pg.VMFMixture(2, max_iter=2, n_init=1, random_state=0), units(9, 4)
    built()
    mixture.fit(x)
    for name in ("predict", "predict_proba", "score_samples"):
        assert getattr(mixture, name)(x).device.type == DEVICE, name
