"""kornia: differentiable computer vision."""

from census.package import Package

package = Package("kornia", "0.9.0", family="segmentation, detection and vision", group="vision", modules=["kornia"])


def _target_log_softmax(shape, classes, masked=False, scale=1.0):
    import torch
    from kornia.losses.focal import _TargetLogSoftmax

    logits = (scale * torch.randn(shape[0], classes, *shape[1:], dtype=torch.float64)).requires_grad_()
    target = torch.randint(classes, (shape[0], 1, *shape[1:]))
    valid = torch.rand(shape[0], 1, *shape[1:]) > 0.4 if masked else None
    return _TargetLogSoftmax.apply, (logits, target, valid)


@package.case("log-softmax at the target")
def log_softmax():
    return _target_log_softmax((2, 3, 2), 4)


@package.case("log-softmax at the target, rows without dimensions")
def log_softmax_rows():
    return _target_log_softmax((5,), 3)


@package.case("log-softmax at the target, masked")
def log_softmax_masked():
    return _target_log_softmax((2, 3, 2), 4, masked=True)


@package.case("log-softmax at the target, wide logits")
def log_softmax_wide():
    return _target_log_softmax((2, 2, 3), 3, scale=30.0)


@package.case("log-softmax at the target, in chunks")
def log_softmax_chunks():
    import kornia.losses.focal as focal

    def chunked(*given):
        kept, focal._CPU_CHUNK_BYTES = focal._CPU_CHUNK_BYTES, 64
        try:
            return focal._TargetLogSoftmax.apply(*given)
        finally:
            focal._CPU_CHUNK_BYTES = kept

    return chunked, _target_log_softmax((3, 2, 2), 3, masked=True)[1]


@package.case("focal loss on the reduced path")
def focal_loss():
    import kornia.losses.focal as focal
    import torch

    focal._focal_loss_cpu_eligible = lambda pred: True  # the path is meant for large images
    logits = torch.randn(2, 3, 2, 2, dtype=torch.float64).requires_grad_()
    target = torch.tensor([[[0, 1], [2, -100]], [[1, 1], [0, 2]]])
    return lambda pred: focal.focal_loss(pred, target, 0.4, 1.7, "sum"), logits


@package.case("null space of seven equations")
def null_space_seven():
    import torch
    from kornia.geometry.epipolar.essential import _NullSpaceBasis

    def projector(design):
        basis = _NullSpaceBasis.apply(design)[0]
        return basis @ basis.mT

    return projector, torch.randn(2, 7, 9, dtype=torch.float64)


@package.case("null space of five equations")
def null_space_five():
    import torch
    from kornia.geometry.epipolar.essential import _NullSpaceBasis

    def projector(design):
        basis = _NullSpaceBasis.apply(design)[0]
        return basis @ basis.mT

    return projector, torch.randn(2, 5, 9, dtype=torch.float64)


@package.case("null space with a small gap")
def null_space_gap():
    import torch
    from kornia.geometry.epipolar.essential import _NullSpaceBasis

    def projector(design):
        basis = _NullSpaceBasis.apply(design)[0]
        return basis @ basis.mT

    u, _, v = torch.linalg.svd(torch.randn(6, 9, dtype=torch.float64), full_matrices=False)
    sizes = torch.tensor([3.0, 2.0, 2.0, 1.0, 0.5, 0.4], dtype=torch.float64)
    return projector, ((u * sizes) @ v).unsqueeze(0)


@package.case("essential matrices of seven points")
def essential():
    import torch
    from kornia.geometry.epipolar import find_essential

    points = torch.rand(1, 7, 2, dtype=torch.float64)
    moved = points + 0.1 * torch.rand(1, 7, 2, dtype=torch.float64)
    return lambda a, b: find_essential(a, b)[0].square(), (points, moved)


package.finding(
    "kornia-null-space-second-derivative",
    kind="second derivative",
    where="kornia/geometry/epipolar/essential.py:221",
    what="The backward of the null-space basis takes the singular values and vectors as constants, so that second derivatives miss theirs.",
    size="0.6 of a curvature",
    cases=["null space of seven equations", "null space of five equations", "null space with a small gap"],
)
