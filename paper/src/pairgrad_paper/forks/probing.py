"""A local probe: what several backward rules say at one state, on one batch, of one forward."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from pairgrad.coherence import best_scaling, relative_gap
from pairgrad.losses import update_field, vmf_scores
from pairgrad.potentials import potential
from pairgrad.sphere import ClassBank
from pairgrad_paper.models import Outputs
from pairgrad_paper.training import Trainer
from pairgrad_paper.training.batches import Batch
from pairgrad_paper.training.objective import Objective, Terms

SUPPLIED, REFERENCE = "original", "consistent"  # one forward, two backwards
OTHERS = ("arfr", "paired")


class _Gradients(NamedTuple):
    """Of one realization at the shared outputs."""

    terms: Terms
    features: torch.Tensor  # of the vMF term with respect to the features of both views
    parameters: tuple[torch.Tensor, ...]  # of the whole loss


def probe(trainer: Trainer, batch: Batch) -> dict[str, Any]:
    """Gaps between the gradients of `"original"`, `"consistent"`, `"arfr"` and `"paired"` at the state of a trainer, which is left as it was.

    The network runs once; every realization differentiates its own loss of those outputs against its own copy of the class bank. See the package of
    records for the names.
    """
    names = (SUPPLIED, REFERENCE, *OTHERS)
    with _untouched(trainer):
        trainer.network.train()
        outputs = trainer.outputs(batch)
        objective = _begun(trainer)
        found = {name: _gradients(trainer, objective, outputs, batch, name) for name in names}
        views = _views(outputs, batch).detach()
    scores, field = _scored(objective, views, batch.labels)
    supplied, reference = found[SUPPLIED], found[REFERENCE]
    return {
        "vmf_loss": reference.terms.vmf.item(),
        "scores_equal": all(torch.equal(*pair) for pair in zip(scores[SUPPLIED], scores[REFERENCE], strict=True)),
        "loss_equal": all(torch.equal(*pair) for pair in zip(supplied.terms, reference.terms, strict=True)),
        "feature_gap": relative_gap([supplied.features], [reference.features]),
        "feature_residual": best_scaling([supplied.features], [reference.features]).residual,
        "parameter_gap": relative_gap(supplied.parameters, reference.parameters),
        "parameter_residual": best_scaling(supplied.parameters, reference.parameters).residual,
        **field,
        **{f"{name}_gap": relative_gap([found[name].features], [reference.features]) for name in OTHERS},
        **{f"{name}_loss_gap": abs(found[name].terms.vmf.item() - reference.terms.vmf.item()) for name in OTHERS},
    }


def _begun(trainer: Trainer) -> Objective:
    """A copy of the objective as the next update has it: a bank that remembers epochs turns its page at the first update of one."""
    objective = copy.deepcopy(trainer.objective)
    if trainer.step % trainer.batches.per_epoch == 0:
        objective.start_epoch(trainer.epoch)
    return objective.train()


def _gradients(trainer: Trainer, begun: Objective, outputs: Outputs, batch: Batch, realization: str) -> _Gradients:
    objective = with_realization(begun, realization)
    logits, features = (tensor.detach().requires_grad_() for tensor in (outputs.logits, outputs.features))
    terms = objective(Outputs(logits, features, outputs.backbone), batch.labels)
    (of_vmf,) = torch.autograd.grad(terms.vmf, features, retain_graph=True)
    of_outputs = torch.autograd.grad(terms.total, (logits, features))
    parameters = [parameter for parameter in trainer.network.parameters() if parameter.requires_grad]
    of_parameters = torch.autograd.grad(
        (outputs.logits, outputs.features), parameters, of_outputs, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    detached = Terms(*(term.detach() for term in terms))
    return _Gradients(detached, of_vmf[len(batch.labels) : 3 * len(batch.labels)], of_parameters)


def with_realization(objective: Objective, realization: str) -> Objective:
    """A copy that computes its potential in another way, with a copy of the class bank."""
    other = copy.deepcopy(objective)
    other.vmf.potential = potential(other.bank.dim, realization)
    return other


def _views(outputs: Outputs, batch: Batch) -> torch.Tensor:
    """(2, B, p), the features that the vMF term sees."""
    size = len(batch.labels)
    return torch.stack((outputs.features[size : 2 * size], outputs.features[2 * size : 3 * size]))


def _scored(objective: Objective, views: torch.Tensor, labels: torch.Tensor) -> tuple[Mapping[str, list[torch.Tensor]], dict[str, float]]:
    """The scores of both views against the bank as each sees it, for the two rules; and the defect, in float64, with the radii it is at."""
    loss = objective.vmf
    bank: ClassBank = copy.deepcopy(loss.bank)
    scores: dict[str, list[torch.Tensor]] = {SUPPLIED: [], REFERENCE: []}
    defects, radii, capped = [], [], 0.0
    nu = bank.dim / 2 - 1
    for view in views:
        bank.update(view, labels)
        for name, collected in scores.items():
            options = {"geometry": loss.options.geometry, "scalar_dtype": loss.options.scalar_dtype, "validate": False}
            collected.append(vmf_scores(view, bank, loss.temperature, name, **options))
        field = update_field(
            view, labels, bank, loss.temperature, loss.log_prior, realization=SUPPLIED, geometry_dtype=torch.float64, validate=False
        )
        defects.append(field.radial_defect.abs().max().item())
        radii.append(field.radius / nu)
        capped = (bank.concentration >= bank.rule.cap).double().mean().item()
    radius = torch.stack(radii)
    return scores, {"defect": max(defects), "radius_low": radius.min().item(), "radius_high": radius.max().item(), "capped": capped}


@contextmanager
def _untouched(trainer: Trainer) -> Iterator[None]:
    """A forward in training mode moves the averages of batch normalisation: put them back."""
    network = trainer.network
    before = {name: buffer.clone() for name, buffer in network.named_buffers()}
    training = network.training
    try:
        yield
    finally:
        with torch.no_grad():
            for name, buffer in network.named_buffers():
                buffer.copy_(before[name])
        network.train(training)
