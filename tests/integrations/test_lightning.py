"""The Lightning callback, in a real fit."""

import pytest
import torch

pytest.importorskip("lightning.pytorch", reason="needs lightning: pip install lightning")
pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's own, about workers and loggers

import lightning.pytorch as lightning  # noqa: E402
from lightning.pytorch.loggers import CSVLogger  # noqa: E402

from pairgrad.coherence import CoherenceWarning, IncoherentBackward  # noqa: E402
from pairgrad.integrations.lightning import CoherenceCallback  # noqa: E402
from tests.coherence.training import Capped, Net  # noqa: E402


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def training_step(self, batch, index):
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


def fit(tmp_path, *callbacks):
    torch.manual_seed(0)
    module = Module()
    data = torch.utils.data.TensorDataset(torch.randn(256, 8), torch.randint(0, 4, (256,)))
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        callbacks=list(callbacks),
        logger=CSVLogger(tmp_path),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=16))
    return [parameter.detach().clone() for parameter in module.parameters()], trainer


def test_a_fit_is_watched_and_keeps_its_bits(tmp_path):
    plain, _ = fit(tmp_path / "plain")
    callback = CoherenceCallback(every=8, states=2, share=1.0, reaction="ignore")
    watched, trainer = fit(tmp_path / "watched", callback)
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
    assert {row["step"] for row in callback.monitor.rows} == {8, 16}
    assert not callback.monitor.report.passed
    trainer.logger.save()
    logged = next((tmp_path / "watched").rglob("metrics.csv")).read_text()
    assert "coherence/defect/Capped" in logged


def test_what_ends_a_fit_ends_the_watch(tmp_path):
    forward = vars(Capped)["forward"]
    with pytest.raises(IncoherentBackward, match="Capped"):
        fit(tmp_path, CoherenceCallback(every=4, states=1, reaction="raise"))
    assert vars(Capped)["forward"] is forward


@pytest.mark.filterwarnings("always::pairgrad.coherence.CoherenceWarning")
def test_it_warns(tmp_path):
    with pytest.warns(CoherenceWarning, match="Capped"):
        fit(tmp_path, CoherenceCallback(every=4, states=1))
