"""The callback for the Trainer of transformers, in a real training."""

import pytest
import torch

pytest.importorskip("transformers", reason="needs transformers: pip install transformers accelerate")
pytest.importorskip("accelerate", reason="the Trainer of transformers needs accelerate: pip install accelerate")
pytestmark = pytest.mark.filterwarnings("ignore")

import transformers  # noqa: E402

from pairgrad.integrations.transformers import CoherenceCallback  # noqa: E402
from tests.coherence.training import Capped, Net  # noqa: E402


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def forward(self, x, labels):
        logits = self.net(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def fit(tmp_path, *callbacks):
    torch.manual_seed(0)
    model = Model()
    data = [{"x": torch.randn(8), "labels": torch.randint(0, 4, ())} for _ in range(128)]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=12,
        per_device_train_batch_size=16,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=data, callbacks=list(callbacks))
    trainer.train()
    return [parameter.detach().clone() for parameter in model.parameters()], trainer


def test_a_training_is_watched_and_keeps_its_bits(tmp_path):
    forward = vars(Capped)["forward"]
    plain, _ = fit(tmp_path / "plain")
    callback = CoherenceCallback(every=5, states=2, share=1.0, reaction="ignore")
    watched, trainer = fit(tmp_path / "watched", callback)
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
    assert {row["step"] for row in callback.monitor.rows} == {5, 10, 12}
    assert [entry["step"] for entry in trainer.state.log_history if "coherence/failing" in entry] == [5, 10, 12]
    assert vars(Capped)["forward"] is forward
