"""FLOPs and bytes of a step, against counts made by hand."""

import pytest
import torch
from torch import nn

from reference_models.digits import DigitsConfig, synthetic
from worker.utilisation import count_work


def test_a_matmul_has_two_flops_for_each_product_and_moves_its_operands_and_result():
    work = count_work(lambda: torch.ones(2, 3) @ torch.ones(3, 5), batch_size=2)
    assert work.step_flops == 2 * 2 * 3 * 5
    assert work.step_bytes == 4 * (2 * 3 + 3 * 5 + 2 * 5)
    assert work.batch_size == 2


def test_what_is_no_matmul_or_convolution_is_no_work():
    assert count_work(lambda: torch.ones(4).exp().sum(), batch_size=1) is None


def test_a_step_of_the_digits_network_has_the_flops_of_its_layers():
    # Products of a forward pass for one image: 64 places x 32 and 64 x 32 x 64 filters of nine,
    # 16 x 64 x 128 of nine, 512 x 10. Backward is twice that, less the gradient of the images.
    first = 2 * 64 * 32 * 9
    forward = first + 2 * (64 * 32 * 64 * 9 + 16 * 64 * 128 * 9 + 512 * 10)
    work = count_work(synthetic(DigitsConfig(batch_size=16), "cpu").train_step, batch_size=16)
    assert work.step_flops == 16 * (3 * forward - first)


def test_fused_attention_on_a_processor_is_counted():
    q = torch.ones(2, 3, 4, 8, requires_grad=True)  # (B, heads, T, d)

    def forward():
        return nn.functional.scaled_dot_product_attention(q, q, q)

    # Scores and values: two products of T x T x d for each head, two FLOPs each.
    assert count_work(forward, batch_size=2).step_flops == 2 * 3 * 2 * 2 * 4 * 4 * 8

    def both():
        forward().sum().backward()

    # Backward makes five such products where forward makes two.
    assert count_work(both, batch_size=2).step_flops == pytest.approx(2 * 3 * 7 * 2 * 4 * 4 * 8)


def test_a_fused_recurrent_layer_is_counted():
    layer = nn.LSTM(3, 5, batch_first=True)
    # Each of 2 x 4 items goes through matrices of 20 x 3 and 20 x 5, two FLOPs a weight.
    forward = 2 * 8 * (20 * 3 + 20 * 5)
    with torch.no_grad():
        assert count_work(lambda: layer(torch.ones(2, 4, 3)), batch_size=2).step_flops == forward
    training = count_work(lambda: layer(torch.ones(2, 4, 3))[0].sum().backward(), batch_size=2)
    assert training.step_flops == 3 * forward
