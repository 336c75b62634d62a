"""Names that people read and files are called by."""

import re

from kernel_dvfs_step import names


def test_a_product_is_told_by_its_tile_and_layout():
    assert names.short("nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_bias_TNN") == "nvjet 128x256 TNN"


def test_a_template_is_told_by_what_it_is_made_for():
    text = (
        "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::GeluCUDAKernelImpl("
        "at::TensorIteratorBase&)::{lambda()#2}, std::array<char*, 2ul> >(int, at::native::X, std::array<char*, 2ul>)"
    )
    assert names.short(text) == "vectorized_elementwise_kernel GeluCUDAKernelImpl"
    assert names.short("void cutlass::Kernel2<cutlass_80_wmma_tensorop>(cutlass::P)") == "cutlass_80_wmma_tensorop"
    assert names.short("void (anonymous namespace)::softmax_warp_forward<float, 8>(float*)") == "softmax_warp_forward"
    assert names.short("triton_poi_fused_add_0") == "triton_poi_fused_add_0"


def test_a_name_that_is_too_long_for_the_demangler_is_told_by_its_own_words():
    text = (
        "_ZN7cutlass13device_kernelIN2at4cuda6detail25enable_3x_kernel_for_sm9xINS_4gemm6kernel13GemmUniversalI"
        "NS5_17GroupProblemShapeIN4cute5tupleIJiiiEEEEENS9_9Copy_AtomIJS2D_NS_6half_tEEEEvEEEvvEEEEEEvNT_6ParamsE"
    )
    assert names.short(text) == "grouped GemmUniversal"
    assert names.short(text.replace("17GroupProblemShape", "12ProblemShape")) == "GemmUniversal"
    assert names.short("_ZN2at6nativeIfEEvv") == "native"


def test_ids_are_fit_for_files_and_unique():
    ids = names.unique(names.slug(text) for text in ("mm 8x2x3", "mm 8x2x3", "MM_8x2x3 2", "…", "mm 8x2x3"))
    assert len(set(ids)) == 5 and all(re.fullmatch(r"[a-z0-9][a-z0-9_]{0,59}", each) for each in ids)
    assert ids[:2] == ["mm_8x2x3", "mm_8x2x3_2"]


def test_recorded_kernels_have_short_names(recorded):
    for function in recorded.functions:
        assert 0 < len(names.short(function)) <= 48
