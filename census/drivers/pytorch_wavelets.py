"""pytorch_wavelets: discrete and dual-tree complex wavelet transforms, and scattering layers made of them."""

from census.package import Package

package = Package(
    "pytorch-wavelets",
    "1.3.0",
    family="wavelets and signal processing",
    group="signals",
    modules=["pytorch_wavelets"],
    note="DWTForward, DWTInverse, DTCWTForward and DTCWTInverse have been audited through their modules, whose filters are buffers or frozen parameters.",
)


def noise(*shape):
    """Ordinary numbers in float64."""
    import torch

    return torch.randn(*shape, dtype=torch.float64)


def analysis(wave, mode, levels=1):
    """DWTForward as a function of the image: the lowpass and the highpasses."""
    from pytorch_wavelets import DWTForward

    return DWTForward(J=levels, wave=wave, mode=mode).double().requires_grad_(False)


def synthesis(wave, mode):
    """DWTInverse as a function of one lowpass and one highpass."""
    from pytorch_wavelets import DWTInverse

    module = DWTInverse(wave=wave, mode=mode).double().requires_grad_(False)
    return lambda low, high: module((low, [high]))


@package.case()
def dwt_zero():
    return analysis("db2", "zero"), noise(1, 2, 6, 8)


@package.case()
def dwt_zero_odd_sizes():
    return analysis("db2", "zero"), noise(1, 1, 7, 5)


@package.case()
def dwt_haar_two_levels():
    return analysis("haar", "zero", 2), noise(2, 1, 8, 4)


@package.case()
def dwt_biorthogonal_zero():
    return analysis("bior2.2", "zero"), noise(1, 1, 8, 6)


@package.case()
def dwt_symmetric():
    return analysis("db2", "symmetric"), noise(1, 1, 6, 8)


@package.case()
def dwt_reflect():
    return analysis("db2", "reflect"), noise(1, 1, 6, 8)


@package.case()
def dwt_periodic():
    return analysis("db2", "periodic"), noise(1, 1, 6, 8)


@package.case()
def dwt_periodization():
    return analysis("db2", "periodization"), noise(1, 1, 8, 6)


@package.case()
def dwt_periodization_odd_sizes():
    return analysis("db2", "periodization"), noise(1, 1, 7, 5)


@package.case()
def dwt_haar_symmetric_odd_sizes():
    return analysis("haar", "symmetric"), noise(1, 1, 5, 7)


@package.case()
def dwt_1d_zero():
    from pytorch_wavelets import DWT1DForward

    return DWT1DForward(J=2, wave="db3", mode="zero").double().requires_grad_(False), noise(2, 2, 11)


@package.case()
def dwt_1d_symmetric():
    from pytorch_wavelets import DWT1DForward

    return DWT1DForward(J=1, wave="db2", mode="symmetric").double().requires_grad_(False), noise(1, 1, 10)


@package.case()
def dwt_1d_periodization_odd_size():
    from pytorch_wavelets import DWT1DForward

    return DWT1DForward(J=1, wave="db2", mode="periodization").double().requires_grad_(False), noise(1, 1, 9)


@package.case()
def idwt_zero():
    return synthesis("db2", "zero"), (noise(1, 1, 5, 4), noise(1, 1, 3, 5, 4))


@package.case()
def idwt_symmetric():
    return synthesis("db2", "symmetric"), (noise(1, 1, 5, 4), noise(1, 1, 3, 5, 4))


@package.case()
def idwt_periodization():
    return synthesis("db2", "periodization"), (noise(1, 1, 4, 6), noise(1, 1, 3, 4, 6))


@package.case()
def idwt_of_the_highpass_alone():
    invert, low = synthesis("db2", "zero"), noise(1, 1, 5, 4)
    return invert, (low, noise(1, 1, 3, 5, 4).requires_grad_())


@package.case()
def idwt_1d_zero():
    from pytorch_wavelets import DWT1DInverse

    module = DWT1DInverse(wave="db2", mode="zero").double().requires_grad_(False)
    return lambda low, high: module((low, [high])), (noise(1, 2, 6), noise(1, 2, 6))


@package.case()
def idwt_1d_of_the_highpass_alone():
    from pytorch_wavelets import DWT1DInverse

    module = DWT1DInverse(wave="db2", mode="zero").double().requires_grad_(False)
    return lambda low, high: module((low, [high])), (noise(1, 1, 6), noise(1, 1, 6).requires_grad_())


@package.case()
def dtcwt_two_levels():
    from pytorch_wavelets import DTCWTForward

    return DTCWTForward(J=2, biort="near_sym_a", qshift="qshift_a").double().requires_grad_(False), noise(1, 1, 8, 8)


@package.case()
def dtcwt_without_a_highpass():
    from pytorch_wavelets import DTCWTForward

    return DTCWTForward(J=2, skip_hps=[True, False]).double().requires_grad_(False), noise(1, 1, 8, 8)


@package.case()
def dtcwt_one_level_zero():
    from pytorch_wavelets import DTCWTForward

    return DTCWTForward(J=1, mode="zero").double().requires_grad_(False), noise(1, 1, 6, 8)


@package.case()
def dtcwt_without_its_only_highpass_zero():
    from pytorch_wavelets import DTCWTForward

    module = DTCWTForward(J=1, mode="zero", skip_hps=True).double().requires_grad_(False)
    return lambda x: module(x)[0], noise(1, 1, 6, 8)


@package.case()
def dtcwt_antonini():
    from pytorch_wavelets import DTCWTForward

    return DTCWTForward(J=2, biort="antonini", qshift="qshift_06").double().requires_grad_(False), noise(1, 1, 8, 12)


@package.case()
def inverse_dtcwt():
    from pytorch_wavelets import DTCWTInverse

    module = DTCWTInverse().double().requires_grad_(False)
    return lambda low, one, two: module((low, [one, two])), (noise(1, 1, 4, 4), noise(1, 1, 6, 4, 4, 2), noise(1, 1, 6, 2, 2, 2))


@package.case()
def inverse_dtcwt_with_a_lowpass_to_crop():
    from pytorch_wavelets import DTCWTInverse

    module = DTCWTInverse().double().requires_grad_(False)
    return lambda low, one, two: module((low, [one, two])), (noise(1, 1, 4, 4), noise(1, 1, 6, 3, 3, 2), noise(1, 1, 6, 2, 2, 2))


@package.case()
def scattering_layer():
    from pytorch_wavelets import ScatLayer

    return ScatLayer().double().requires_grad_(False), noise(1, 1, 6, 4)


@package.case()
def scattering_layer_zero_padded():
    from pytorch_wavelets import ScatLayer

    return ScatLayer(mode="zero").double().requires_grad_(False), noise(1, 1, 6, 4)


@package.case()
def scattering_layer_rotational():
    from pytorch_wavelets import ScatLayer

    return ScatLayer(biort="near_sym_b_bp").double().requires_grad_(False), noise(1, 1, 4, 6)


@package.case()
def scattering_layer_of_colours():
    from pytorch_wavelets import ScatLayer

    return ScatLayer(combine_colour=True, magbias=0.1).double().requires_grad_(False), noise(1, 3, 4, 4)


@package.case(seconds=120)
def two_scale_scattering_layer():
    from pytorch_wavelets import ScatLayerj2

    return ScatLayerj2().double().requires_grad_(False), noise(1, 1, 8, 8)


@package.case(seconds=120)
def two_scale_scattering_layer_rotational():
    from pytorch_wavelets import ScatLayerj2

    return ScatLayerj2(biort="near_sym_b_bp", qshift="qshift_b_bp").double().requires_grad_(False), noise(1, 1, 8, 8)


@package.case()
def smooth_magnitude():
    from pytorch_wavelets.scatternet.lowlevel import SmoothMagFn

    return lambda x, y: SmoothMagFn.apply(x, y, 0.1), (noise(5), noise(5))


@package.case()
def smooth_magnitude_of_the_imaginary_part():
    from pytorch_wavelets.scatternet.lowlevel import SmoothMagFn

    return lambda x, y: SmoothMagFn.apply(x, y, 0.1), (noise(5), noise(5).requires_grad_())


package.finding(
    "pytorch-wavelets-dwt-borders",
    kind="gradient in a configuration",
    where="pytorch_wavelets/dwt/lowlevel.py:356",
    what="The backward of the analysis in the modes symmetric, reflect and periodic is that of zero padding: what the padding copies from the border is not "
    "added to it.",
    size="0.1 to 0.9 of the gradient of small images, all of it near the border",
    cases=["dwt symmetric", "dwt reflect", "dwt periodic", "dwt haar symmetric odd sizes", "dwt 1d symmetric"],
)
package.finding(
    "pytorch-wavelets-dwt-odd-periodization",
    kind="gradient in a configuration",
    where="pytorch_wavelets/dwt/lowlevel.py:360",
    what="In the mode periodization, odd sizes are extended by a copy of the last sample, and the backward cuts the gradient of the copy off instead of adding "
    "it to that of the sample.",
    size="0.1 to 0.7 of the gradient, all of it in the last row and column",
    cases=["dwt periodization odd sizes", "dwt 1d periodization odd size"],
)
package.finding(
    "pytorch-wavelets-idwt-highpass",
    kind="missing gradient",
    where="pytorch_wavelets/dwt/lowlevel.py:685",
    what="The backward of the synthesis returns None for the highpass coefficients unless the lowpass asks for a gradient.",
    size="no gradient at all",
    cases=[
        "idwt zero",
        "idwt periodization",
        "idwt of the highpass alone",
        "idwt 1d zero",
        "idwt 1d of the highpass alone",
    ],
)
package.finding(
    "pytorch-wavelets-idwt-borders",
    kind="gradient in a configuration",
    where="pytorch_wavelets/dwt/lowlevel.py:688",
    what="The backward of the synthesis in the modes symmetric, reflect and periodic is an analysis with that padding, where the forward crops and the adjoint "
    "has zeros.",
    size="0.5 to 1.0 of the gradient of small images",
    cases=["idwt symmetric"],
)
package.finding(
    "pytorch-wavelets-dtcwt-without-highpass",
    kind="gradient in a configuration",
    where="pytorch_wavelets/dtcwt/transform_funcs.py:159",
    what="The backward of the first level of the dual-tree transform with mode zero and without highpasses filters with symmetric padding, as the mode is not "
    "handed on.",
    size="0.3 to 0.4 of the gradient of small images",
    cases=["dtcwt without its only highpass zero"],
)
package.finding(
    "pytorch-wavelets-smooth-magnitude",
    kind="missing gradient",
    where="pytorch_wavelets/scatternet/lowlevel.py:64",
    what="The backward of the smooth magnitude raises where the imaginary part needs a gradient and the real part does not.",
    size="an error in place of the gradient",
    cases=["smooth magnitude", "smooth magnitude of the imaginary part"],
)
