"""The callables of torch that a captured model may name: those that take tensors and give tensors.

A profile is untrusted, and `torch.` leads to functions that read files, run code or change global
state; so this is a list of what may be called, and whatever is not on it is refused.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["CALLABLES", "FACTORIES", "PROPERTIES"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PROPERTIES: Final = _words("H T data imag mH mT real")
"""Attributes of a tensor that are tensors."""

FACTORIES: Final = _words(
    """
    arange bartlett_window blackman_window empty eye full hamming_window hann_window kaiser_window
    linspace logspace ones rand randint randn randperm range scalar_tensor tensor tril_indices
    triu_indices zeros
    """
)
"""Functions of `torch` that make a tensor from nothing, on a device of choice."""

_TENSOR: Final = """
    __abs__ __add__ __and__ __div__ __eq__ __floordiv__ __ge__ __getitem__ __gt__ __iadd__
    __iand__ __ifloordiv__ __ilshift__ __imod__ __imul__ __invert__ __ior__ __ipow__ __irshift__
    __isub__ __itruediv__ __ixor__ __le__ __lshift__ __lt__ __matmul__ __mod__ __mul__ __ne__
    __neg__ __or__ __pos__ __pow__ __radd__ __rand__ __rfloordiv__ __rlshift__ __rmatmul__
    __rmod__ __rmul__ __ror__ __rpow__ __rrshift__ __rshift__ __rsub__ __rtruediv__ __rxor__
    __setitem__ __sub__ __truediv__ __xor__ abs abs_ absolute absolute_ acos acos_ acosh acosh_
    add add_ addbmm addbmm_ addcdiv addcdiv_ addcmul addcmul_ addmm addmm_ addmv addmv_ addr
    addr_ adjoint all allclose amax amin aminmax angle any arccos arccos_ arccosh arccosh_
    arcsin arcsin_ arcsinh arcsinh_ arctan arctan2 arctan2_ arctan_ arctanh arctanh_ argmax
    argmin argsort argwhere as_strided as_strided_ as_strided_scatter asin asin_ asinh asinh_
    atan atan2 atan2_ atan_ atanh atanh_ baddbmm baddbmm_ bernoulli bernoulli_ bfloat16 bincount
    bitwise_and bitwise_and_ bitwise_left_shift bitwise_left_shift_ bitwise_not bitwise_not_
    bitwise_or bitwise_or_ bitwise_right_shift bitwise_right_shift_ bitwise_xor bitwise_xor_ bmm
    bool broadcast_to byte cauchy_ cdouble ceil ceil_ cfloat char cholesky cholesky_inverse
    cholesky_solve chunk clamp clamp_ clamp_max clamp_max_ clamp_min clamp_min_ clip clip_ clone
    conj conj_physical conj_physical_ contiguous copy_ copysign copysign_ corrcoef cos cos_ cosh
    cosh_ count_nonzero cov cross cummax cummin cumprod cumprod_ cumsum cumsum_ deg2rad deg2rad_
    det detach diag diag_embed diagflat diagonal diagonal_scatter diff digamma digamma_ dim dist
    div div_ divide divide_ dot double dsplit eq eq_ equal erf erf_ erfc erfc_ erfinv erfinv_
    exp exp2 exp2_ exp_ expand expand_as expm1 expm1_ exponential_ fill_ fill_diagonal_ fix fix_
    flatten flip fliplr flipud float float_power float_power_ floor floor_ floor_divide
    floor_divide_ fmax fmin fmod fmod_ frac frac_ frexp gather gcd gcd_ ge ge_ geometric_ geqrf
    ger greater greater_ greater_equal greater_equal_ gt gt_ half hardshrink heaviside
    heaviside_ histc histogram hsplit hypot hypot_ i0 i0_ igamma igamma_ igammac igammac_ index
    index_add index_add_ index_copy_ index_fill index_fill_ index_put index_put_ index_reduce
    index_reduce_ index_select inner int inverse is_complex is_contiguous is_floating_point
    is_nonzero is_signed isclose isfinite isinf isnan isneginf isposinf isreal istft kron
    kthvalue lcm lcm_ ldexp ldexp_ le le_ lerp lerp_ less less_ less_equal less_equal_ lgamma
    lgamma_ log log10 log10_ log1p log1p_ log2 log2_ log_ log_normal_ log_softmax logaddexp
    logaddexp2 logcumsumexp logdet logical_and logical_and_ logical_not logical_not_ logical_or
    logical_or_ logical_xor logical_xor_ logit logit_ logsumexp long lt lt_ lu lu_solve
    masked_fill masked_fill_ masked_scatter masked_scatter_ masked_select matmul matrix_exp
    matrix_power max maximum mean median min minimum mm mode moveaxis movedim msort mul mul_
    multinomial multiply multiply_ mv mvlgamma mvlgamma_ nan_to_num nan_to_num_ nanmean
    nanmedian nanquantile nansum narrow ndimension ne ne_ neg neg_ negative negative_ nelement
    new_empty new_full new_ones new_tensor new_zeros nextafter nextafter_ nonzero nonzero_static
    norm normal_ not_equal not_equal_ numel orgqr ormqr outer permute pinverse polygamma
    polygamma_ positive pow pow_ prelu prod put put_ qr quantile rad2deg rad2deg_ random_ ravel
    reciprocal reciprocal_ relu relu_ remainder remainder_ renorm renorm_ repeat
    repeat_interleave reshape reshape_as resolve_conj resolve_neg roll rot90 round round_ rsqrt
    rsqrt_ scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_ select
    select_scatter sgn sgn_ short sigmoid sigmoid_ sign sign_ signbit sin sin_ sinc sinc_ sinh
    sinh_ size slice_inverse slice_scatter slogdet softmax sort split split_with_sizes sqrt
    sqrt_ square square_ squeeze squeeze_ std stft sub sub_ subtract subtract_ sum sum_to_size
    svd swapaxes swapaxes_ swapdims swapdims_ t t_ take take_along_dim tan tan_ tanh tanh_
    tensor_split tile to topk trace transpose transpose_ triangular_solve tril tril_ triu triu_
    true_divide true_divide_ trunc trunc_ type type_as unbind unflatten unfold uniform_ unique
    unique_consecutive unsqueeze unsqueeze_ var vdot view view_as vsplit where xlogy xlogy_
    zero_
    """

_TORCH: Final = """
    abs absolute acos acosh adaptive_avg_pool1d adaptive_max_pool1d add addbmm addcdiv addcmul
    addmm addmv addr adjoint affine_grid_generator all allclose alpha_dropout amax amin aminmax
    angle any arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argsort
    argwhere as_strided_scatter as_tensor asin asinh atan atan2 atanh atleast_1d atleast_2d
    atleast_3d avg_pool1d baddbmm bartlett_window batch_norm batch_norm_backward_elemt
    batch_norm_backward_reduce batch_norm_elemt batch_norm_gather_stats
    batch_norm_gather_stats_with_counts batch_norm_stats batch_norm_update_stats bernoulli
    binary_cross_entropy_with_logits bincount binomial bitwise_and bitwise_left_shift
    bitwise_not bitwise_or bitwise_right_shift bitwise_xor blackman_window block_diag bmm
    broadcast_tensors broadcast_to bucketize cartesian_prod cat cdist ceil celu chain_matmul
    channel_shuffle cholesky cholesky_inverse cholesky_solve chunk clamp clamp_max clamp_min
    clip clone column_stack combinations complex concat concatenate conj conj_physical
    constant_pad_nd conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
    convolution copysign corrcoef cos cosh cosine_embedding_loss count_nonzero cov cross
    ctc_loss cummax cummin cumprod cumsum cumulative_trapezoid deg2rad det detach diag
    diag_embed diagflat diagonal diagonal_scatter diff digamma dist div divide dot dropout
    dropout_ dsplit dstack einsum embedding embedding_bag empty empty_like eq equal erf erfc
    erfinv exp exp2 expm1 eye feature_alpha_dropout feature_dropout fix flatten flip fliplr
    flipud float_power floor floor_divide fmax fmin fmod frac frexp frobenius_norm full
    full_like gather gcd ge geqrf ger gradient greater greater_equal grid_sampler
    grid_sampler_2d grid_sampler_3d group_norm gru gru_cell gt hamming_window hann_window
    hardshrink heaviside hinge_embedding_loss histc histogram histogramdd hsplit hstack hypot i0
    igamma igammac imag index_add index_fill index_put index_reduce index_select inner
    instance_norm inverse is_complex is_floating_point is_nonzero is_signed isclose isfinite
    isin isinf isnan isneginf isposinf isreal istft kaiser_window kl_div kron kthvalue
    layer_norm lcm ldexp le lerp less less_equal lgamma linspace lobpcg log log10 log1p log2
    log_softmax logaddexp logaddexp2 logcumsumexp logdet logical_and logical_not logical_or
    logical_xor logit logspace logsumexp lstm lstm_cell lt lu_solve margin_ranking_loss
    masked_fill masked_scatter masked_select matmul matrix_exp matrix_power max max_pool1d
    max_pool1d_with_indices max_pool2d max_pool3d maximum mean median meshgrid min minimum mode
    moveaxis movedim msort mul multinomial multiply mv mvlgamma nan_to_num nanmean nanmedian
    nanquantile nansum narrow native_batch_norm native_dropout native_group_norm
    native_layer_norm ne neg negative nextafter nonzero nonzero_static norm norm_except_dim
    not_equal nuclear_norm numel ones ones_like orgqr ormqr outer pca_lowrank permute pinverse
    pixel_shuffle pixel_unshuffle poisson poisson_nll_loss polar polygamma positive pow prelu
    prod put qr quantile rad2deg rand randint randn randperm range ravel real reciprocal relu
    relu_ remainder renorm repeat_interleave reshape resolve_conj resolve_neg rms_norm rnn_relu
    rnn_relu_cell rnn_tanh rnn_tanh_cell roll rot90 round row_stack rrelu rsqrt rsub
    scalar_tensor scatter scatter_add scatter_reduce searchsorted select select_scatter selu sgn
    sigmoid sign signbit sin sinc sinh slice_inverse slice_scatter slogdet softmax sort split
    split_with_sizes spmm sqrt square squeeze stack std std_mean stft sub subtract sum svd
    svd_lowrank swapaxes swapdims t take take_along_dim tan tanh tensor tensor_split tensordot
    threshold tile topk trace transpose trapezoid trapz triangular_solve tril tril_indices triu
    triu_indices true_divide trunc unbind unflatten unique unique_consecutive unravel_index
    unsqueeze var var_mean vdot view_as_complex view_as_real vsplit vstack where xlogy zeros
    zeros_like
    """

_FUNCTIONAL: Final = """
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d
    adaptive_max_pool1d_with_indices adaptive_max_pool2d adaptive_max_pool2d_with_indices
    adaptive_max_pool3d adaptive_max_pool3d_with_indices affine_grid alpha_dropout avg_pool1d
    avg_pool2d avg_pool3d batch_norm bilinear binary_cross_entropy
    binary_cross_entropy_with_logits celu channel_shuffle conv1d conv2d conv3d conv_transpose1d
    conv_transpose2d conv_transpose3d cosine_embedding_loss cosine_similarity cross_entropy
    ctc_loss dropout dropout1d dropout2d dropout3d elu embedding embedding_bag
    feature_alpha_dropout fold fractional_max_pool2d fractional_max_pool2d_with_indices
    fractional_max_pool3d fractional_max_pool3d_with_indices gaussian_nll_loss gelu glu
    grid_sample group_norm gumbel_softmax hardshrink hardsigmoid hardswish hardtanh
    hinge_embedding_loss huber_loss instance_norm interpolate kl_div l1_loss layer_norm
    leaky_relu linear linear_cross_entropy local_response_norm log_softmax logsigmoid lp_pool1d
    lp_pool2d lp_pool3d margin_ranking_loss max_pool1d max_pool1d_with_indices max_pool2d
    max_pool2d_with_indices max_pool3d max_pool3d_with_indices max_unpool1d max_unpool2d
    max_unpool3d mish mse_loss multi_head_attention_forward multi_margin_loss
    multilabel_margin_loss multilabel_soft_margin_loss native_channel_shuffle nll_loss normalize
    one_hot pad pairwise_distance pdist pixel_shuffle pixel_unshuffle poisson_nll_loss prelu
    relu relu6 rms_norm rrelu scaled_dot_product_attention selu sigmoid silu smooth_l1_loss
    soft_margin_loss softmax softmin softplus softshrink softsign tanh tanhshrink threshold
    unfold
    """

_FFT: Final = """
    fft fft2 fftn fftshift hfft hfft2 hfftn ifft ifft2 ifftn ifftshift ihfft ihfft2 ihfftn irfft
    irfft2 irfftn rfft rfft2 rfftn
    """

_LINALG: Final = """
    cholesky cholesky_ex cond cross det diagonal eig eigh eigvals eigvalsh householder_product
    inv inv_ex ldl_factor ldl_factor_ex ldl_solve lstsq lu lu_factor lu_factor_ex lu_solve
    matmul matrix_exp matrix_norm matrix_power matrix_rank multi_dot norm pinv qr slogdet solve
    solve_ex solve_triangular svd svdvals tensorinv tensorsolve vander vecdot vector_norm
    """

_SPECIAL: Final = """
    airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 chebyshev_polynomial_t
    chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w digamma entr erf erfc
    erfcx erfinv exp2 expit expm1 gammainc gammaincc gammaln hermite_polynomial_h
    hermite_polynomial_he i0 i0e i1 i1e laguerre_polynomial_l legendre_polynomial_p log1p
    log_ndtr log_softmax logit logsumexp modified_bessel_i0 modified_bessel_i1
    modified_bessel_k0 modified_bessel_k1 multigammaln ndtr ndtri polygamma psi round
    scaled_modified_bessel_k0 scaled_modified_bessel_k1 shifted_chebyshev_polynomial_t
    shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w
    sinc softmax spherical_bessel_j0 xlog1py xlogy zeta
    """

CALLABLES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "torch": _words(_TORCH),
        "torch.Tensor": _words(_TENSOR),
        "torch.fft": _words(_FFT),
        "torch.linalg": _words(_LINALG),
        "torch.nn.functional": _words(_FUNCTIONAL),
        "torch.special": _words(_SPECIAL),
    }
)
"""Names by what they are attributes of."""
