"""Functions that are broken in one way each, and what should tell so. The text is what a user's test file would hold; test_suite.py runs it."""

import random

import torch
from torch.autograd.function import once_differentiable

from pairgrad.testing import CoherenceTests

X = torch.tensor([[0.5, -1.25, 2.0], [0.75, 1.5, -0.25]])


class Sinh(torch.autograd.Function):
    """Right, twice differentiable, and ready for vmap; the others differ from it in one place."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.sinh()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.saved_tensors[0].cosh()


class Inherited(CoherenceTests):
    dtypes = (torch.float64,)
    inputs = X
    left_out = {"test_compiled": "takes long"}


def fails(*names):
    """What a class is expected to fail; test_suite.py compares."""

    def mark(cls):
        cls.should_fail = set(names)
        return cls

    return mark


@fails()
class TestRight(CoherenceTests):
    function = Sinh.apply
    states = {"matrix": X, "vector": X[0]}
    domain = (-3, 3)
    limit = {torch.float64: 1e-12, torch.float32: 1e-5}
    second_order = "right"
    reference = torch.sinh
    accuracy = {torch.float64: (1e-15, 1e-15), torch.float32: (1e-6, 0)}
    nan = "value and gradient"


class OffByAMillionth(Sinh):
    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.saved_tensors[0].cosh() * (1 + 1e-6)


@fails("test_coherent")
class TestFactor(Inherited):
    function = OffByAMillionth.apply


@fails()
class TestFactorTolerated(Inherited):
    function = OffByAMillionth.apply
    tolerance = {torch.float64: 2e-6}


@fails()
class TestFactorExpected(Inherited):
    function = OffByAMillionth.apply
    expected = "incoherent"


@fails("test_coherent")
class TestExpectedToFail(Inherited):
    function = Sinh.apply
    expected = "incoherent"


@fails("test_coherent")
class TestLimit(Inherited):
    function = Sinh.apply
    limit = 1e-13  # the audit ends at 2^-40


class Capped(Sinh):
    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.saved_tensors[0].cosh().clamp(max=5)


@fails("test_coherent_over_domain")
class TestOutside(Inherited):
    function = Capped.apply
    domain = (-4, 4)


@fails()
class TestDeclared(Inherited):
    function = Capped.apply
    inputs = 2 * X
    intent = "gradient-cap"


class Detached(Sinh):
    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.saved_tensors[0].detach().cosh()


@fails("test_second_derivatives")
class TestSecond(Inherited):
    function = Detached.apply


class Once(Sinh):
    generate_vmap_rule = False

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        return grad_output * ctx.saved_tensors[0].cosh()


class WithoutVmap(Inherited):
    left_out = {**Inherited.left_out, "test_vmap": "not written for it"}


@fails()
class TestRefused(WithoutVmap):
    function = Once.apply
    second_order = "refused"


@fails("test_second_derivatives")
class TestRefusedAgainstTheDeclaration(WithoutVmap):
    function = Once.apply
    second_order = "right"


@fails("test_second_derivatives")
class TestNotRefusedAgainstTheDeclaration(Inherited):
    function = Sinh.apply
    second_order = "refused"


class ClippedGradOutput(Sinh):
    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.clamp(-50, 50) * ctx.saved_tensors[0].cosh()


@fails("test_linear_in_grad_output")
class TestLinear(Inherited):
    function = ClippedGradOutput.apply


class SpoilsWhatItSaved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.slope = x.cosh()
        return x.sinh()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        return ctx.slope.mul_(grad_output)


@fails("test_repeatable")
class TestSecondBackward(WithoutVmap):
    function = SpoilsWhatItSaved.apply


class Flickers(torch.autograd.Function):
    dice = random.Random(0)  # not a generator that anybody could put back

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sinh()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        return grad_output * ctx.saved_tensors[0].cosh() * (1 + 1e-14 * Flickers.dice.random())


@fails("test_repeatable")
class TestFlickers(WithoutVmap):
    function = Flickers.apply


@fails()
class TestMayFlicker(WithoutVmap):
    function = Flickers.apply
    deterministic = False


class KeepsOnTheClass(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        KeepsOnTheClass.x = x.detach().clone()
        return x.sinh()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        return grad_output * KeepsOnTheClass.x.cosh()


@fails("test_interleaved")
class TestInterleaved(WithoutVmap):
    function = KeepsOnTheClass.apply


def counting(x, count):
    count += 1
    return Sinh.apply(x)


@fails("test_edits_nothing")
class TestEdits(WithoutVmap):
    function = counting
    inputs = (X, torch.zeros((), dtype=torch.int64))


class IgnoresStrides(Once):
    @staticmethod
    def forward(x):
        flat = torch.as_strided(x, (x.numel(),), (1,), x.storage_offset())
        return flat.sinh().reshape(x.shape)


@fails("test_noncontiguous")
class TestStrides(WithoutVmap):
    function = IgnoresStrides.apply


class FlatGradOutput(Once):
    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        return (grad_output.view(-1) * ctx.saved_tensors[0].cosh().view(-1)).view(grad_output.shape)


@fails("test_noncontiguous")
class TestFlatGradOutput(WithoutVmap):
    function = FlatGradOutput.apply


@fails("test_vmap")
class TestVmapRefused(Inherited):
    function = Once.apply


class Classic(torch.autograd.Function):
    """forward takes ctx, as most of those that were written before torch.func; right."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sinh()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.saved_tensors[0].cosh()


@fails()
class TestClassic(Inherited):
    function = Classic.apply


class ClassicOnce(Classic):
    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        return grad_output * ctx.saved_tensors[0].cosh()


@fails()
class TestClassicOnce(Inherited):
    function = ClassicOnce.apply


class VmapOfTheFirstRow(Once):
    @staticmethod
    def vmap(info, in_dims, x):
        return VmapOfTheFirstRow.apply(x.movedim(in_dims[0], 0)[:1].expand_as(x)), 0


@fails("test_vmap")
class TestVmapWrong(Inherited):
    function = VmapOfTheFirstRow.apply


@fails("test_compiled")
class TestGraphBreak(Inherited):
    left_out = {}

    def function(self, x):
        torch._dynamo.graph_break()
        return x.sinh()


@fails("test_compiled")
class TestCompiledDifferently(Inherited):
    left_out = {}

    def function(x):
        return x.sinh() * (1.001 if torch.compiler.is_compiling() else 1)


@fails("test_empty_batch")
class TestEmpty(WithoutVmap):
    def function(x):
        return Sinh.apply(x - x.max().detach()) + 0 * x.max().detach()

    left_out = {**WithoutVmap.left_out, "test_coherent": "max is detached", "test_second_derivatives": "max is detached"}


class Weighted(torch.autograd.Function):
    """The gradient of the weight is a mean over rows times their number: nothing times NaN for none."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        return grad_output * weight, (grad_output * x).mean(0) * len(x)


@fails("test_empty_batch")
class TestEmptyWeight(WithoutVmap):
    function = Weighted.apply
    inputs = (X, X[1])
    batched = (0,)


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        return (grad_output * y).sum_to_size(x.shape), (grad_output * x).mean(0, keepdim=True).expand(y.shape) if len(
            y
        ) == 1 else grad_output * x


@fails("test_broadcast")
class TestBroadcast(WithoutVmap):
    function = Product.apply
    inputs = (X, X.flip(0))
    broadcasts = [((3, 2), (1, 2))]


@fails()
class TestBroadcastOfTheOther(WithoutVmap):
    function = Product.apply
    inputs = (X, X.flip(0))
    broadcasts = [((3, 1), (3, 4))]


@fails("test_nan")
class TestNanInTheValue(Inherited):
    def function(x):
        return Sinh.apply(torch.where(x.isnan(), 0, x))

    nan = "value"


class DropsNan(Sinh):
    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.saved_tensors[0].cosh().nan_to_num()


@fails("test_nan")
class TestNanInTheGradient(Inherited):
    function = DropsNan.apply
    nan = "value and gradient"


@fails()
class TestNanInTheValueOnly(Inherited):
    function = DropsNan.apply
    nan = "value"


@fails("test_faithful")
class TestUnfaithful(Inherited):
    def function(x):
        return 1.001 * Sinh.apply(x)

    reference = torch.sinh
    accuracy = 5e-4


@fails()
class TestFaithfulEnough(TestUnfaithful):
    accuracy = 2e-3
