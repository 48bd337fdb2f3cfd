"""Clustering text by direction: a mixture of von Mises-Fisher distributions on word counts.

    python examples/text_clustering.py                              # docstrings of Python's standard library: on every machine
    PAIRGRAD_DATA=... python examples/text_clustering.py --data classic3      # needs text/classic3.mat there
    PAIRGRAD_DATA=... python examples/text_clustering.py --data newsgroups    # needs text/newsgroups20_minilm384.npz there

A text of a hundred words and one of ten are about the same thing when their words are in the same proportions: what counts is the direction of the vector
of word counts. A von Mises-Fisher distribution is a direction with a concentration, so a mixture of them is a clustering of texts
that says how tight each cluster is and how sure each membership. Labels (which package a docstring is from) are used afterwards, to look at the result.

Needs: pairgrad, scikit-learn, matplotlib. Nothing is downloaded. Read it from top to bottom; editors that know "# %%" show the sections as cells.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import re
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.feature_extraction.text import TfidfTransformer, TfidfVectorizer
from sklearn.metrics import normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix
from sklearn.preprocessing import normalize

from pairgrad import VMFMixture, potential
from pairgrad.ground.files import write_atomically
from pairgrad.ground.timing import machine_line
from pairgrad_paper.figures.style import BLACK, BLUE, GREEN, SETTINGS, VERMILION, open_axes, pyplot

# %% 1. Texts ----------------------------------------------------------------------------------------------------------
#
# The default corpus is the documentation strings of functions and classes of some packages of the standard library, read from their source: real text,
# written by many people, on every machine. A row of the TF-IDF matrix has entries for the few words of its text and stays sparse throughout.

PACKAGES = {
    "asyncio": "asyncio",
    "decimal": "_pydecimal.py",
    "email": "email",
    "http": "http",
    "importlib": "importlib",
    "inspect": "inspect.py",
    "ipaddress": "ipaddress.py",
    "logging": "logging",
    "multiprocessing": "multiprocessing",
    "statistics": "statistics.py",
    "tarfile": "tarfile.py",
    "threading": "threading.py",
    "turtle": "turtle.py",
    "typing": "typing.py",
    "unittest": "unittest",
    "xml": "xml",
}
LEAST_WORDS = 8  # a shorter text says too little


@dataclass(frozen=True)
class Corpus:
    """Rows to cluster, sparse or dense; what is known about them; and how many components to try."""

    name: str
    rows: Any
    labels: np.ndarray  # (n,), integers
    label_names: list[str]
    words: np.ndarray | None  # of the columns, if they are words
    titles: list[str] | None  # a line for every row
    components: tuple[int, ...]


def documentation(library: Path, places: dict[str, str] = PACKAGES) -> Iterator[tuple[str, str]]:
    """(package, docstring) for every class and function that has a docstring of some length; equal ones once."""
    seen = set()
    for package, place in places.items():
        path = library / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path] if path.exists() else []:
            for node in ast.walk(ast.parse(file.read_bytes())):
                text = ast.get_docstring(node) if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) else None
                if text and text not in seen and len(re.findall("[A-Za-z]{3,}", text)) >= LEAST_WORDS:
                    seen.add(text)
                    yield package, text


def docstrings() -> Corpus:
    library = Path(sysconfig.get_path("stdlib"))
    pairs = list(documentation(library))
    if not pairs:
        raise FileNotFoundError(f"--data docstrings reads the source of Python's standard library, and there is none in {library}")
    packages, texts = zip(*pairs, strict=True)
    vectorizer = TfidfVectorizer(sublinear_tf=True, stop_words="english", token_pattern="[a-z]{3,}", min_df=4, max_df=0.3)
    rows = vectorizer.fit_transform(texts)
    known = np.flatnonzero(np.diff(rows.indptr))  # a text of rare words only has no direction
    names, labels = np.unique(packages, return_inverse=True)
    titles = [" ".join(texts[i].split())[:90] for i in known]
    return Corpus(
        "docstrings", rows[known], labels[known], names.tolist(), vectorizer.get_feature_names_out(), titles, (2, 4, 8, 12, 16, 20, 24, 32)
    )


# Two corpora that the literature knows. They are read from the directory that PAIRGRAD_DATA names.


def stored(data: str, file: str, content: str) -> Path:
    """The file, or an error that says what is needed."""
    root = os.environ.get("PAIRGRAD_DATA")
    found = f"the directory {root} has no such file" if root else "the variable is not set"
    if not root or not (Path(root) / file).exists():
        raise FileNotFoundError(
            f"--data {data} reads {file} ({content}) in the directory that the environment variable PAIRGRAD_DATA names: {found}. "
            "--data docstrings needs no file."
        )
    return Path(root) / file


def classic3() -> Corpus:
    """Abstracts from medicine (MEDLINE), information science (CISI) and aerodynamics (CRANFIELD)."""
    from scipy.io import loadmat  # scikit-learn brings it

    path = stored("classic3", "text/classic3.mat", "document-term counts A, class labels, terms ms")
    matrix = loadmat(path, variable_names=["A", "labels", "ms"])
    rows = TfidfTransformer(sublinear_tf=True).fit_transform(matrix["A"].tocsr())
    words = np.array([str(term[0]) for term in matrix["ms"].ravel()])
    return Corpus(
        "classic3", rows, matrix["labels"].ravel().astype(int), ["MEDLINE", "CISI", "CRANFIELD"], words, None, (2, 3, 4, 6, 8, 12, 16, 24)
    )


def newsgroups() -> Corpus:
    """Posts to 20 newsgroups as sentence embeddings: dense rows, and no words to name a component by."""
    path = stored("newsgroups", "text/newsgroups20_minilm384.npz", "embeddings X, class labels y, names")
    with np.load(path, allow_pickle=False) as file:
        rows, labels, names = normalize(file["X"].astype(np.float32)), file["y"].astype(int), file["names"].tolist()
    return Corpus("newsgroups", rows, labels, names, None, None, (10, 20, 40, 60, 80, 120, 160))


CORPORA: dict[str, Callable[[], Corpus]] = {"docstrings": docstrings, "classic3": classic3, "newsgroups": newsgroups}


# %% 2. How many components --------------------------------------------------------------------------------------------
#
# More components always fit better. The Bayesian information criterion, -2 log-likelihood + parameters x log n, charges for them: a component has a
# direction, a weight and, unless all share one (`tied`), a concentration. The lowest value wins.


_KINDS = {False: "free", True: "tied"}  # concentrations


@dataclass(frozen=True)
class Trial:
    tied: bool
    components: int
    bic: float
    nmi: float
    mixture: VMFMixture


def agreement(corpus: Corpus, clusters: np.ndarray) -> float:
    """Normalised mutual information of clusters and labels: 0 for none, 1 for equal partitions."""
    return float(normalized_mutual_info_score(corpus.labels, clusters))


def trials(corpus: Corpus, components: Sequence[int], starts: int, seed: int) -> list[Trial]:
    tried = []
    for tied in (False, True):
        for k in components:
            mixture = VMFMixture(k, tied=tied, n_init=starts, random_state=seed).fit(corpus.rows)
            trial = Trial(tied, k, mixture.bic(corpus.rows), agreement(corpus, mixture.labels_), mixture)
            print(f"{_KINDS[tied]:>6}  k = {k:2d}  BIC {trial.bic:15.0f}  NMI {trial.nmi:.3f}  {mixture.n_iter_:3d} iterations", flush=True)
            tried.append(trial)
    return tried


# %% 3. Beside k-means -------------------------------------------------------------------------------------------------
#
# K-means on normalised rows is what a mixture becomes when memberships are hard, weights equal and the concentration one and the same. Each line of the
# comparison gives up one of these restrictions.


def comparison(corpus: Corpus, starts: int, seed: int) -> dict[str, float]:
    """The agreement with the labels, with as many clusters as there are labels."""
    k = len(corpus.label_names)
    found = {"k-means on unit rows": KMeans(k, n_init=starts, random_state=seed).fit(normalize(corpus.rows)).labels_}
    for name, e_step, tied in (
        ("hard memberships, tied concentration", "hard", True),
        ("soft memberships, tied concentration", "soft", True),
        ("soft memberships, free concentrations", "soft", False),
    ):
        found[name] = VMFMixture(k, e_step=e_step, tied=tied, n_init=starts, random_state=seed).fit(corpus.rows).labels_
    return {name: agreement(corpus, clusters) for name, clusters in found.items()}


# %% 4. What a component is --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Component:
    weight: float
    concentration: float
    cosine: float  # that a member is expected to have with the mean direction
    label: str  # the commonest
    share: float  # of the members with that label
    words: list[str]


def describe(corpus: Corpus, mixture: VMFMixture, words: int = 7) -> list[Component]:
    """The components: the words whose coordinates of the mean direction are largest, and what the labels say."""
    table = contingency_matrix(corpus.labels, mixture.labels_, sparse=False)
    members = np.zeros((len(corpus.label_names), mixture.n_components))
    members[np.ix_(np.unique(corpus.labels), np.unique(mixture.labels_))] = table
    kappas = torch.as_tensor(mixture.concentrations_, dtype=torch.float64)
    cosines = potential(dim=mixture.n_features_in_).slope(kappas).numpy()
    described = []
    for j in range(mixture.n_components):
        top = [] if corpus.words is None else corpus.words[np.argsort(-mixture.mean_directions_[j], kind="stable")[:words]].tolist()
        likeliest = int(members[:, j].argmax())
        share = members[likeliest, j] / max(members[:, j].sum(), 1)
        described.append(
            Component(float(mixture.weights_[j]), float(kappas[j]), float(cosines[j]), corpus.label_names[likeliest], float(share), top)
        )
    return described


def memberships(corpus: Corpus, mixture: VMFMixture) -> np.ndarray:
    """The probability of the likeliest component, for every row."""
    return mixture.predict_proba(corpus.rows).max(1)


def divided(corpus: Corpus, mixture: VMFMixture, count: int = 3) -> list[str]:
    """The texts whose membership is the least certain, with their two likeliest components."""
    shares = mixture.predict_proba(corpus.rows)
    lines = []
    for row in np.argsort(shares.max(1), kind="stable")[:count]:
        first, second = np.argsort(-shares[row], kind="stable")[:2]
        title = corpus.label_names[corpus.labels[row]] if corpus.titles is None else corpus.titles[row]
        lines.append(f"  component {first} ({shares[row, first]:.2f}) or {second} ({shares[row, second]:.2f}): {title}")
    return lines


# %% 5. Picture --------------------------------------------------------------------------------------------------------
#
# One line per component: what it contains, how large and how tight it is, and its words.


def draw(corpus: Corpus, tried: Sequence[Trial], chosen: Trial, components: list[Component], most: int = 32) -> Any:
    plt = pyplot()
    shown = sorted(range(len(components)), key=lambda j: -components[j].weight)[:most]
    order = sorted(shown, key=lambda j: (corpus.label_names.index(components[j].label), -components[j].weight))
    worded = corpus.words is not None
    height = 2.0 + 0.27 * max(len(order), 6)
    figure = plt.figure(figsize=(10, 3.0 + height), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(3.0, height))
    draw_choice(*above.subplots(1, 2), tried, chosen)
    content, size, tightness = below.subplots(1, 3, width_ratios=(0.2 * len(corpus.label_names) + 0.6, 0.8, 1.1 + 3.6 * worded))
    draw_content(content, corpus, chosen.mixture, order)
    for axes, values, title, colour in (
        (size, [components[j].weight for j in order], "weight", BLUE),
        (tightness, [components[j].concentration for j in order], r"concentration $\kappa$", VERMILION),
    ):
        axes.barh(range(len(order)), values, color=colour, height=0.7)
        axes.set(ylim=(len(order) - 0.5, -0.5), yticks=[])
        axes.set_title(title, loc="left")
        open_axes(axes)
    if worded:
        draw_words(tightness, [components[j] for j in order])
    return figure


def draw_words(axes: Any, components: Sequence[Component]) -> None:
    """Beside the bars of the concentrations, which get the left quarter."""
    top = max(component.concentration for component in components)
    axes.set_xlim(0, 4.6 * top)
    axes.set_xticks([0, top], ["0", f"{top:.0f}"])
    axes.spines["bottom"].set_bounds(0, top)
    axes.set_title(r"concentration $\kappa$, and the leading words", loc="left")
    for y, component in enumerate(components):
        axes.text(component.concentration + 0.05 * top, y, " ".join(component.words), va="center", fontsize=9)


def draw_choice(left: Any, right: Any, tried: Sequence[Trial], chosen: Trial) -> None:
    """The criterion, which does not know the labels, and the agreement with them."""
    least = min(trial.bic for trial in tried)
    for tied, style in ((False, {"color": BLUE, "marker": "o"}), (True, {"color": GREEN, "marker": "s", "ls": "--"})):
        those = [trial for trial in tried if trial.tied == tied]
        k = [trial.components for trial in those]
        left.plot(k, [(trial.bic - least) / 1000 for trial in those], label=f"{_KINDS[tied]} concentrations", ms=5, **style)
        right.plot(k, [trial.nmi for trial in those], ms=5, **style)
    for axes, y in ((left, (chosen.bic - least) / 1000), (right, chosen.nmi)):
        axes.plot(chosen.components, y, marker="o", ms=13, mfc="none", mec=BLACK, ls="none", label="chosen")
        axes.set_xlabel("components")
    left.set(ylabel="thousands above the least", title="BIC, by which to choose: low is good")
    right.set(ylabel="normalised mutual information", title="Agreement with the labels", ylim=(0, 1))
    right.legend(*left.get_legend_handles_labels(), loc="lower right")
    open_axes(left, right)


def draw_content(axes: Any, corpus: Corpus, mixture: VMFMixture, order: list[int]) -> None:
    counts = np.zeros((mixture.n_components, len(corpus.label_names)))
    np.add.at(counts, (mixture.labels_, corpus.labels), 1)
    shares = counts / counts.sum(1, keepdims=True).clip(1)
    axes.imshow(shares[order], cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for y, j in enumerate(order):
        for x in np.flatnonzero(shares[j] >= 0.1):
            axes.text(
                x, y, f"{100 * shares[j, x]:.0f}", ha="center", va="center", fontsize=9, color="white" if shares[j, x] > 0.6 else BLACK
            )
    axes.set_xticks(range(len(corpus.label_names)), corpus.label_names, rotation=60, ha="right", rotation_mode="anchor", fontsize=9)
    axes.set_yticks(range(len(order)), [str(j) for j in order], fontsize=9)
    axes.set_ylabel("component")
    axes.set_title("labels, %", loc="left")


# %% 6. All of it ------------------------------------------------------------------------------------------------------


def run(data: str, components: Sequence[int], starts: int, seed: int, output: Path) -> dict[str, Any]:
    """Choose, fit, compare, describe, draw; write the picture and the numbers to `output`."""
    begun = time.perf_counter()
    corpus = CORPORA[data]()
    print(f"{corpus.name}: {corpus.rows.shape[0]} texts, {corpus.rows.shape[1]} columns, {len(corpus.label_names)} labels")
    tried = trials(corpus, components or corpus.components, starts, seed)
    chosen = min(tried, key=lambda trial: trial.bic)
    if chosen.components == max(trial.components for trial in tried):
        print("the BIC is lowest at the largest number tried: more components may be better still")
    mixture, likeliest = chosen.mixture, memberships(corpus, chosen.mixture)
    described = describe(corpus, mixture)
    monotone = all(trial.mixture.monotone_log_likelihood_ for trial in tried)
    compared = comparison(corpus, starts, seed)
    print(f"\nchosen: {chosen.components} components, {_KINDS[chosen.tied]} concentrations; EM never lowered a likelihood: {monotone}\n")
    print(listing(described))
    print(
        f"\nthe likeliest component has a probability above 0.99 for {np.mean(likeliest > 0.99):.1%} of the texts; the least certain memberships:"
    )
    print("\n".join(divided(corpus, mixture)))
    print(f"\nnormalised mutual information with the labels, with as many clusters as labels ({len(corpus.label_names)}):")
    print("\n".join(f"  {value:.3f}  {name}" for name, value in compared.items()))
    with pyplot().rc_context(SETTINGS):
        save(draw(corpus, tried, chosen, described), output / f"text-clustering-{data}.png")
    facts = {
        "machine": machine_line(),
        "data": data,
        "texts": corpus.rows.shape[0],
        "columns": corpus.rows.shape[1],
        "seed": seed,
        "bic": [{"tied": t.tied, "components": t.components, "bic": t.bic, "nmi": t.nmi} for t in tried],
        "chosen": {"tied": chosen.tied, "components": chosen.components},
        "monotone": monotone,
        "nmi": compared,
        "above_99_percent": float(np.mean(likeliest > 0.99)),
        "components": [vars(component) for component in described],
        "seconds": round(time.perf_counter() - begun, 1),
    }
    write_atomically(output / f"text-clustering-{data}.json", json.dumps(facts, indent=1) + "\n")
    print(f"\n{facts['seconds']} s; picture and numbers: {output}")
    return facts


def listing(components: Sequence[Component]) -> str:
    """A line per component."""
    lines = ["component  weight   kappa  cosine  commonest label (share)          words"]
    for j, c in enumerate(components):
        label = f"{c.label} ({c.share:.0%})"
        lines.append(f"{j:9d}  {c.weight:6.3f}  {c.concentration:6.0f}  {c.cosine:6.3f}  {label:<31}  {' '.join(c.words)}")
    return "\n".join(lines)


def save(figure: Any, path: Path) -> Path:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    pyplot().close(figure)
    return write_atomically(path, buffer.getvalue())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=sorted(CORPORA), default="docstrings")
    parser.add_argument("--components", type=int, nargs="+", default=[], help="numbers of components to try; a fitting range if not given")
    parser.add_argument("--starts", type=int, default=3, help="starts of every fit, of which the best is kept")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("text-clustering"), help="directory for the picture and the numbers")
    options = parser.parse_args(arguments)
    try:
        run(options.data, options.components, options.starts, options.seed, options.output)
    except FileNotFoundError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
