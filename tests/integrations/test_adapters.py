"""The adapters against stand-ins for their libraries: which hook does what. test_lightning.py and test_transformers.py run them in real trainings."""

import importlib
import sys
import types

import pytest

from tests.coherence.training import Capped, train


class Logger:
    def __init__(self):
        self.logged = []

    def log_metrics(self, metrics, step):
        self.logged.append((step, metrics))


@pytest.fixture
def stand_in(monkeypatch):
    """A module that holds nothing but a base class, in place of the installed one, if there is one."""

    def make(module, name, adapter):
        package = module.split(".")[0]
        fake = types.ModuleType(module)
        setattr(fake, name, type(name, (), {}))
        monkeypatch.setitem(sys.modules, package, types.ModuleType(package))
        monkeypatch.setitem(sys.modules, module, fake)
        monkeypatch.delitem(sys.modules, adapter, raising=False)
        made = importlib.import_module(adapter)
        monkeypatch.delitem(sys.modules, adapter)
        return made

    return make


def test_lightning(stand_in):
    adapter = stand_in("lightning.pytorch", "Callback", "pairgrad.integrations.lightning")
    callback, logger = adapter.CoherenceCallback(every=2, states=1, share=1.0, reaction="ignore"), Logger()
    trainer = types.SimpleNamespace(global_step=0, loggers=[logger])
    forward = vars(Capped)["forward"]

    def after():
        trainer.global_step += 10
        callback.on_train_batch_end(trainer, None, None, None, 0)

    callback.on_train_start(trainer, None)
    assert vars(Capped)["forward"] is not forward
    train(5, after=after)
    callback.on_train_end(trainer, None)
    assert vars(Capped)["forward"] is forward
    assert [step for step, _ in logger.logged] == [20, 40, 50]  # and once more in the end
    assert logger.logged[0][1]["coherence/defect/Capped"] > 0
    callback.on_train_start(trainer, None)
    callback.on_exception(trainer, None, KeyError())
    assert vars(Capped)["forward"] is forward


def test_transformers(stand_in):
    adapter = stand_in("transformers.trainer_callback", "TrainerCallback", "pairgrad.integrations.transformers")
    logged = []
    callback = adapter.CoherenceCallback(every=2, states=1, share=1.0, reaction="ignore", log=lambda scalars, step: logged.append(step))
    state = types.SimpleNamespace(global_step=0, log_history=[{"loss": 1.0}])
    forward = vars(Capped)["forward"]

    def after():
        state.global_step += 1
        callback.on_step_end(None, state, None, model=None)

    callback.on_train_begin(None, state, None)
    train(5, after=after)
    callback.on_train_end(None, state, None)
    assert vars(Capped)["forward"] is forward
    assert [entry["step"] for entry in state.log_history[1:]] == [2, 4, 5] == logged
    assert state.log_history[1]["coherence/failing"] >= 1


@pytest.mark.parametrize(("adapter", "needs"), [("lightning", "lightning"), ("transformers", "transformers")])
def test_what_is_missing_is_said(adapter, needs, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] in ("lightning", "pytorch_lightning", "transformers")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning", "transformers", "transformers.trainer_callback"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"pairgrad.integrations.{adapter}", raising=False)
    with pytest.raises(ImportError, match=f"this adapter needs {needs}: pip install {needs}"):
        importlib.import_module(f"pairgrad.integrations.{adapter}")
