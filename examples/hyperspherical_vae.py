"""A variational autoencoder whose latent space is a sphere, on the handwritten digits that come with scikit-learn.

    python examples/hyperspherical_vae.py                      # latent dimensions 3 and 64, pictures in ./hyperspherical-vae/
    python examples/hyperspherical_vae.py --latent-dim 16 --epochs 50 --output somewhere

A usual VAE has a Gaussian posterior and a Gaussian prior, and the prior pulls every image towards one centre. On a sphere there is no centre: the prior can
be uniform, and the posterior of an image is a direction with a concentration. Two things are needed that torch.distributions does not have, and
pairgrad.VonMisesFisher does: draws that are differentiable in both parameters, and the exact divergence to the uniform distribution.

Needs: pairgrad, scikit-learn, matplotlib. Nothing is downloaded. Read it from top to bottom; editors that know "# %%" show the sections as cells.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.distributions import Binomial, Distribution, Independent, Normal, kl_divergence

from pairgrad import HypersphericalUniform, VonMisesFisher
from pairgrad.ground.files import write_atomically
from pairgrad.ground.timing import machine_line
from pairgrad_paper.figures.style import SETTINGS, open_axes, pyplot

PIXELS = 64  # 8 x 8
DOTS = 16  # in the block that a pixel stands for


# %% 1. Data -----------------------------------------------------------------------------------------------------------
#
# The digits were scanned as 32 x 32 black and white dots; a pixel of the 8 x 8 image is the number of black dots in a block of 16. A binomial
# distribution of 16 dots per pixel is therefore a likelihood of the data as they are, and ELBOs below are those of a proper discrete model.


@dataclass(frozen=True)
class Digits:
    """Images as counts from 0 to 16, (n, 64), and the digits that those for testing show."""

    train: Tensor
    test: Tensor
    test_labels: Tensor


def load(seed: int) -> Digits:
    digits: Any = load_digits()
    train, test, _, labels = train_test_split(digits.data, digits.target, test_size=0.2, stratify=digits.target, random_state=seed)
    return Digits(torch.tensor(train, dtype=torch.float32), torch.tensor(test, dtype=torch.float32), torch.tensor(labels))


# %% 2. Models ---------------------------------------------------------------------------------------------------------
#
# Encoder and decoder are small and the same for both models; what differs is the posterior and the prior. The hyperspherical posterior has a
# mean direction, from F.normalize, and one concentration. How much a concentration concentrates depends on kappa / p, so that is what the network predicts.
#
# At kappa = 0 the posterior is the uniform prior. Nothing special happens there: draws, divergence and their gradients are as right as anywhere, so no
# constant is added to keep away from it. Softplus gets as close to 0 as it likes and can come back. Relu is exactly 0 for many images and, having no slope
# below 0, leaves them there: it is an option to show that nothing breaks, not to learn with.


def layers(*sizes: int) -> nn.Sequential:
    """Linear layers of these sizes, with SiLU between them."""
    steps: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        steps += [nn.Linear(inputs, outputs), nn.SiLU()]
    return nn.Sequential(*steps[:-1])


class HypersphericalVAE(nn.Module):
    """Latent variables on the unit sphere in `dim` dimensions, which has dim - 1 degrees of freedom."""

    def __init__(self, dim: int, hidden: int = 128, concentration: Callable[[Tensor], Tensor] = F.softplus) -> None:
        super().__init__()
        self.dim = dim
        self.activation = concentration
        self.rise = 1.0  # section 4 lets the concentrations up from 0 by it
        self.encoder = layers(PIXELS, hidden, hidden, dim + 1)
        self.decoder = layers(dim, hidden, hidden, PIXELS)

    def posterior(self, images: Tensor) -> VonMisesFisher:
        direction, concentration = self.encoder(images / DOTS).split([self.dim, 1], dim=-1)
        kappa = self.rise * self.dim * self.activation(concentration.squeeze(-1))
        return VonMisesFisher(F.normalize(direction, dim=-1), kappa)

    def prior(self) -> HypersphericalUniform:
        return HypersphericalUniform(self.dim)

    def likelihood(self, latent: Tensor) -> Distribution:
        scaled = math.sqrt(self.dim) * latent  # coordinates of a unit vector are of size 1 / sqrt(dim), and layers are made for size 1
        return Independent(Binomial(DOTS, logits=self.decoder(scaled)), 1)


class GaussianVAE(nn.Module):
    """For comparison: as many degrees of freedom, hence dim - 1 coordinates, with a standard deviation for each."""

    def __init__(self, dim: int, hidden: int = 128) -> None:
        super().__init__()
        self.free = dim - 1
        self.encoder = layers(PIXELS, hidden, hidden, 2 * self.free)
        self.decoder = layers(self.free, hidden, hidden, PIXELS)

    def posterior(self, images: Tensor) -> Distribution:
        mean, scale = self.encoder(images / DOTS).chunk(2, dim=-1)
        return Independent(Normal(mean, F.softplus(scale) + 1e-4), 1)

    def prior(self) -> Distribution:
        return Independent(Normal(torch.zeros(self.free), torch.ones(self.free)), 1)

    def likelihood(self, latent: Tensor) -> Distribution:
        return Independent(Binomial(DOTS, logits=self.decoder(latent)), 1)


# %% 3. Objective ------------------------------------------------------------------------------------------------------
#
# The evidence lower bound: how well a draw from the posterior explains the image, less how far the posterior is from the prior. The draw is
# differentiable, the divergence exact. Averaging importance weights of many draws gives a tighter estimate of log p(image), by which models with
# different posteriors can be compared.


def elbo(model: Any, posterior: Distribution, images: Tensor, samples: int = 1, weight: float = 1.0) -> Tensor:
    """In nats per image; `weight` is that of the divergence."""
    latent = posterior.rsample((samples,))
    return model.likelihood(latent).log_prob(images).mean(0) - weight * kl_divergence(posterior, model.prior())


def log_likelihood(model: Any, images: Tensor, samples: int = 100) -> Tensor:
    """The importance-weighted estimate of log p(image), a lower bound in expectation."""
    posterior, prior = model.posterior(images), model.prior()
    latent = posterior.sample((samples,))
    weights = model.likelihood(latent).log_prob(images) + prior.log_prob(latent) - posterior.log_prob(latent)
    return weights.logsumexp(0) - math.log(samples)


def finite(name: str, *tensors: Tensor | None) -> None:
    """An error if a number is NaN or infinite: this example promises that none is."""
    for tensor in tensors:
        if tensor is not None and not bool(tensor.isfinite().all()):
            raise FloatingPointError(f"{name}: {int((~tensor.isfinite()).sum())} of {tensor.numel()} numbers are not finite")


# %% 4. Training -------------------------------------------------------------------------------------------------------
#
# Every run starts from posteriors that are exactly uniform. During the first epochs a factor rises from 0 to 1, a little at every step; it scales the
# concentrations and, as is usual, the weight of the divergence, so that the encoder is not told to give up before the decoder has learned to listen.
# Losses and gradients are checked at every step.


@dataclass
class Course:
    """What a run is judged by. The ELBO is that of the test images, before training and after every epoch."""

    name: str
    dim: int
    parameters: int
    elbo: list[float] = field(default_factory=list)
    mean_concentration: list[float] = field(default_factory=list)
    least_concentration: float | None = None  # of all steps and images
    uniform_posteriors: int = 0  # how often, in all steps, an image had concentration exactly 0
    divergence: float = math.nan
    log_likelihood: float = math.nan
    seconds: float = 0.0


def train(model: Any, digits: Digits, epochs: int, course: Course, rise: int = 3, batch: int = 128, quiet: bool = False) -> Course:
    """Adam, with a rate that falls to 0; `rise` is the number of epochs in which the factor rises."""
    start = time.perf_counter()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    steps = math.ceil(len(digits.train) / batch)
    model.rise = 0.0 if rise else 1.0
    assess(model, digits, course)
    for epoch in range(epochs):
        factors = [min(1.0, (epoch + step / steps) / rise) if rise else 1.0 for step in range(steps)]
        train_epoch(model, digits.train, optimizer, factors, batch, course)
        schedule.step()
        assess(model, digits, course)
        if not quiet:
            print(progress(course, epoch + 1, epochs), flush=True)
    with torch.no_grad():
        course.log_likelihood = log_likelihood(model, digits.test).mean().item()
    course.seconds = round(time.perf_counter() - start, 1)
    return course


def train_epoch(model: Any, images: Tensor, optimizer: torch.optim.Optimizer, factors: list[float], batch: int, course: Course) -> None:
    """One pass over the training images, with the factor of every step."""
    for rows, factor in zip(torch.randperm(len(images)).split(batch), factors, strict=True):
        model.rise = factor
        posterior = model.posterior(images[rows])
        loss = -elbo(model, posterior, images[rows], weight=factor).mean()
        optimizer.zero_grad()
        loss.backward()
        finite("loss", loss)
        finite("gradient", *(parameter.grad for parameter in model.parameters()))
        optimizer.step()
        if isinstance(posterior, VonMisesFisher):
            kappa = posterior.concentration.detach()
            course.uniform_posteriors += int((kappa == 0).sum())
            course.least_concentration = min(
                kappa.min().item(), math.inf if course.least_concentration is None else course.least_concentration
            )


@torch.no_grad()
def assess(model: Any, digits: Digits, course: Course) -> None:
    """Append what the test images say about the model to the course."""
    posterior = model.posterior(digits.test)
    values = elbo(model, posterior, digits.test, samples=10)
    finite("ELBO of the test images", values)
    course.elbo.append(values.mean().item())
    course.divergence = kl_divergence(posterior, model.prior()).mean().item()
    if isinstance(posterior, VonMisesFisher):
        course.mean_concentration.append(posterior.concentration.mean().item())


def progress(course: Course, epoch: int, epochs: int) -> str:
    kappa = f"  mean kappa {course.mean_concentration[-1]:7.2f}" if course.mean_concentration else ""
    return f"{course.name:>17}  epoch {epoch:3d}/{epochs}  test ELBO {course.elbo[-1]:7.3f}  KL {course.divergence:6.3f}{kappa}"


# %% 5. Pictures -------------------------------------------------------------------------------------------------------
#
# A sphere in three dimensions can be shown whole: as two hemispheres, each on a disc, by Lambert's projection, which keeps areas. Above, every test
# image as its digit, at its mean direction. Below, what the decoder draws at every place of the same discs. The borders of the two discs are one circle:
# the back is what one sees after turning the sphere about its vertical axis, so the right border of one disc continues at the left border of the other.


def on_disc(latent: Tensor) -> tuple[Tensor, Tensor]:
    """Where directions are on the discs, and which of them are on the front."""
    front = latent[:, 2] >= 0
    facing = torch.where(front[:, None], latent, latent * torch.tensor([-1.0, 1.0, -1.0]))
    return facing[:, :2] / (1 + facing[:, 2:]).sqrt(), front


def from_disc(place: Tensor, front: bool) -> Tensor:
    """The directions at places of a disc: the inverse of `on_disc`."""
    square = place.square().sum(1, keepdim=True)
    latent = torch.cat([place * (2 - square).clamp_min(0).sqrt(), 1 - square], dim=1)
    return latent if front else latent * torch.tensor([-1.0, 1.0, -1.0])


@torch.no_grad()
def draw_sphere(model: HypersphericalVAE, digits: Digits, cells: int = 13) -> Any:
    plt = pyplot()
    figure, panels = plt.subplots(2, 2, figsize=(9, 9.2), layout="constrained")
    posterior = model.posterior(digits.test)
    places, front = on_disc(posterior.mean_direction)
    colours = plt.get_cmap("tab10").colors
    for side, (above, below) in enumerate(panels.T):
        for axes in (above, below):
            axes.add_patch(plt.Circle((0, 0), 1, fc="none", ec="0.6", lw=1, zorder=3))
            axes.set(xlim=(-1.03, 1.03), ylim=(-1.03, 1.03), aspect="equal")
            axes.axis("off")
        above.set_title(f"test digits at their mean directions: {('front', 'back')[side]}")
        below.set_title(f"what the decoder draws there: {('front', 'back')[side]}")
        for (x, y), label in zip(places[front == (side == 0)].tolist(), digits.test_labels[front == (side == 0)].tolist(), strict=True):
            above.text(x, y, str(label), color=colours[label], ha="center", va="center", fontsize=10, fontweight="bold")
        draw_decoded(below, model, side == 0, cells)
    return figure


def draw_decoded(axes: Any, model: HypersphericalVAE, front: bool, cells: int) -> None:
    """The decoder's image in every cell of a grid that lies on the disc."""
    half = 1 / cells
    middles = torch.linspace(-1 + half, 1 - half, cells)
    places = torch.cartesian_prod(middles, middles)
    places = places[places.norm(dim=1) < 1 - half / 2]
    pictures = model.likelihood(from_disc(places, front)).mean.reshape(-1, 8, 8).numpy()
    across, up = 0.9 * half, 0.8 * half  # digits fill their images in height, and would touch
    for (x, y), picture in zip(places.tolist(), pictures, strict=True):
        axes.imshow(picture, cmap="gray_r", vmin=0, vmax=DOTS, extent=(x - across, x + across, y - up, y + up))
    axes.set(xlim=(-1.03, 1.03), ylim=(-1.03, 1.03))


STYLES = {"sphere": "-", "Gaussian": "--"}
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")


def draw_courses(courses: list[Course]) -> Any:
    plt = pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained", width_ratios=(3, 2))
    dims = sorted({course.dim for course in courses})
    for course in courses:
        style = {"color": COLOURS[dims.index(course.dim) % len(COLOURS)], "ls": STYLES[course.name.split()[0]], "lw": 1.6}
        left.plot(course.elbo, label=f"{course.name}: {course.elbo[-1]:.1f}", **style)
        if course.mean_concentration:
            right.plot(course.mean_concentration, label=f"{course.name}: {course.mean_concentration[-1]:.0f}", **style)
    best = max(course.elbo[-1] for course in courses)
    left.set(xlabel="epoch", ylabel="nats per test image", title="Evidence lower bound on test images", ylim=(best - 200, best + 15))
    right.set_yscale("symlog", linthresh=1)
    right.set_yticks([0, 1, 10, 100, 1000], ["0", "1", "10", "100", "1000"])
    right.set(xlabel="epoch", ylabel=r"mean $\kappa$ of the test images", title=r"The concentrations start at $\kappa = 0$")
    left.legend(loc="lower right")
    right.legend(loc="lower right")
    open_axes(left, right)
    return figure


def save(figure: Any, path: Path) -> Path:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    pyplot().close(figure)
    return write_atomically(path, buffer.getvalue())


# %% 6. All of it ------------------------------------------------------------------------------------------------------


def run(dims: Sequence[int], epochs: int, seed: int, output: Path, concentration: str = "softplus", quiet: bool = False) -> list[Course]:
    """Train on the sphere and, beside it, with Gaussians; write pictures and numbers to `output`."""
    activation = {"softplus": F.softplus, "relu": F.relu}[concentration]
    digits = load(seed)
    courses = []
    for dim in dims:
        for name in (f"sphere p={dim}", f"Gaussian p-1={dim - 1}"):
            torch.manual_seed(seed)
            model = HypersphericalVAE(dim, concentration=activation) if name.startswith("sphere") else GaussianVAE(dim)
            course = Course(name, dim, sum(parameter.numel() for parameter in model.parameters()))
            courses.append(train(model, digits, epochs, course, quiet=quiet))
            if isinstance(model, HypersphericalVAE) and dim == 3:
                with pyplot().rc_context(SETTINGS):
                    save(draw_sphere(model, digits), output / "hyperspherical-vae.png")
    with pyplot().rc_context(SETTINGS):
        save(draw_courses(courses), output / "hyperspherical-vae-elbo.png")
    facts = {
        "machine": machine_line(),
        "seed": seed,
        "epochs": epochs,
        "concentration": concentration,
        "runs": [asdict(course) for course in courses],
    }
    write_atomically(output / "hyperspherical-vae.json", json.dumps(facts, indent=1) + "\n")
    return courses


def summary(courses: list[Course]) -> str:
    """A table, one line per run."""
    rows = [("", "parameters", "ELBO, start", "ELBO, end", "log p(x)", "KL", "mean kappa", "least kappa", "seconds")]
    for c in courses:
        kappas = (f"{c.mean_concentration[-1]:.2f}", f"{c.least_concentration:g}") if c.mean_concentration else ("", "")
        numbers = [f"{value:.2f}" for value in (c.elbo[0], c.elbo[-1], c.log_likelihood, c.divergence)]
        rows.append((c.name, str(c.parameters), *numbers, *kappas, f"{c.seconds:.1f}"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latent-dim", type=int, nargs="+", default=[3, 64], help="dimensions p of the sphere; 3 is also drawn")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--concentration", choices=("softplus", "relu"), default="softplus", help="how the encoder's last number becomes kappa / p"
    )
    parser.add_argument("--output", type=Path, default=Path("hyperspherical-vae"), help="directory for the pictures and the numbers")
    parser.add_argument("--quiet", action="store_true", help="no line per epoch")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # the matrices are small: a second thread costs more than it brings
    courses = run(options.latent_dim, options.epochs, options.seed, options.output, options.concentration, options.quiet)
    print(summary(courses))
    print(f"pictures and numbers: {options.output}")


if __name__ == "__main__":
    main()
