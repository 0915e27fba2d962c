"""Prune to 2:4 and pack in one pass over the weight, in Triton."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from sparse_core.nm.packing.two_four.common import Compressed24, PackedBoth, empty_compressed

_GROUP_TILES = 4
_WORDS_OF_A_TILE: tl.constexpr = tl.constexpr(64)


def prune_and_pack(weight: Tensor) -> Compressed24:
    """Keep the two largest magnitudes of each group of four; see the public function."""
    rows, columns = weight.shape
    result = empty_compressed(rows, columns, weight)
    tiles = columns // 32
    per_program = _GROUP_TILES if tiles % _GROUP_TILES == 0 else 1
    _rows_kernel[(rows // 64, tiles // per_program)](
        weight.view(torch.int64),
        result.values.view(torch.int32),
        result.metadata.view(torch.int32),
        columns // 4,
        TILES=per_program,
        num_warps=4 if per_program > 1 else 1,
    )
    return result


def prune_and_pack_both(weight: Tensor, *, dense: bool) -> PackedBoth:
    """Keep the best 2:4 pattern of each 4x4 tile in both directions; see the public function."""
    rows, columns = weight.shape
    along, across = empty_compressed(rows, columns, weight), empty_compressed(columns, rows, weight)
    pruned = torch.empty_like(weight) if dense else None
    _tiles_kernel[(rows // 64, columns // 64)](
        weight.view(torch.int64),
        along.values.view(torch.int32),
        along.metadata.view(torch.int32),
        across.values.view(torch.int32),
        across.metadata.view(torch.int32),
        None if pruned is None else pruned.view(torch.int64),
        rows // 4,
        columns // 4,
        BFLOAT=weight.dtype == torch.bfloat16,
        num_warps=8,
    )
    return PackedBoth(along, across, pruned)


@triton.jit
def _element(group, position: tl.constexpr):  # type: ignore[no-untyped-def]
    # 16 bits of a group of four, as an int32 without sign.
    return ((group >> (16 * position)) & 0xFFFF).to(tl.int32)


@triton.jit
def _pick(a, b, c, d, position):  # type: ignore[no-untyped-def]
    return tl.where(position == 0, a, tl.where(position == 1, b, tl.where(position == 2, c, d)))


@triton.jit
def _store_words(metadata, nibbles, row_tile, group_tile, group_tiles, TILES: tl.constexpr):  # type: ignore[no-untyped-def]
    # nibbles: (64 rows, 8 * TILES groups). A word has eight: bit 3 of the row, bits 2 and 0 of the group.
    row = tl.arange(0, 64)[:, None]
    group = tl.arange(0, 8 * TILES)[None, :]
    place = ((row >> 3) & 1) + 2 * ((group >> 2) & 1) + 4 * (group & 1)
    bits = (nibbles << (4 * place)).reshape(4, 2, 8, TILES, 2, 2, 2)
    words = tl.sum(tl.sum(tl.sum(bits, 6), 4), 1)
    high = tl.arange(0, 4)[:, None, None, None] * 16 + tl.arange(0, 8)[None, :, None, None] * 2
    low = tl.arange(0, TILES)[None, None, :, None] * _WORDS_OF_A_TILE + tl.arange(0, 2)[None, None, None, :]
    start = (row_tile * group_tiles + group_tile).to(tl.int64) * _WORDS_OF_A_TILE
    tl.store(metadata + start + high + low, words)


@triton.jit
def _rows_kernel(weight, values, metadata, groups, TILES: tl.constexpr):  # type: ignore[no-untyped-def]
    row_tile = tl.program_id(0)
    group_tile = tl.program_id(1) * TILES
    row = row_tile * 64 + tl.arange(0, 64)[:, None]
    place = row.to(tl.int64) * groups + group_tile * 8 + tl.arange(0, 8 * TILES)[None, :]
    group = tl.load(weight + place)
    e0 = _element(group, 0)
    e1 = _element(group, 1)
    e2 = _element(group, 2)
    e3 = _element(group, 3)
    a0 = e0 & 0x7FFF
    a1 = e1 & 0x7FFF
    a2 = e2 & 0x7FFF
    a3 = e3 & 0x7FFF
    # An element is kept when at most one other is larger, or as large and further left.
    k0 = (a1 > a0).to(tl.int32) + (a2 > a0).to(tl.int32) + (a3 > a0).to(tl.int32) < 2
    k1 = (a0 >= a1).to(tl.int32) + (a2 > a1).to(tl.int32) + (a3 > a1).to(tl.int32) < 2
    k2 = (a0 >= a2).to(tl.int32) + (a1 >= a2).to(tl.int32) + (a3 > a2).to(tl.int32) < 2
    k3 = (a0 >= a3).to(tl.int32) + (a1 >= a3).to(tl.int32) + (a2 >= a3).to(tl.int32) < 2
    first = tl.where(k0, 0, tl.where(k1, 1, 2))
    second = tl.where(k3, 3, tl.where(k2, 2, 1))
    pair = _pick(e0, e1, e2, e3, first) | (_pick(e0, e1, e2, e3, second) << 16)
    tl.store(values + place, pair)
    _store_words(metadata, first | (second << 2), row_tile, group_tile, groups // 8, TILES)


@triton.jit
def _magnitude(element, BFLOAT: tl.constexpr):  # type: ignore[no-untyped-def]
    if BFLOAT:
        return ((element & 0x7FFF) << 16).to(tl.float32, bitcast=True)
    return (element & 0x7FFF).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def _pair_sums(e0, e1, e2, e3, BFLOAT: tl.constexpr):  # type: ignore[no-untyped-def]
    a0 = _magnitude(e0, BFLOAT)
    a1 = _magnitude(e1, BFLOAT)
    a2 = _magnitude(e2, BFLOAT)
    a3 = _magnitude(e3, BFLOAT)
    return (a0 + a1, a0 + a2, a0 + a3, a1 + a2, a1 + a3, a2 + a3)


@triton.jit
def _better(best, code, total, candidate):  # type: ignore[no-untyped-def]
    return tl.maximum(best, total), tl.where(total > best, candidate, code)


@triton.jit
def _code(p: tl.constexpr, q: tl.constexpr, r: tl.constexpr, s: tl.constexpr):  # type: ignore[no-untyped-def]
    return p | (q << 3) | (r << 6) | (s << 9)


@triton.jit
def _best_pattern(s0, s1, s2, s3):  # type: ignore[no-untyped-def]
    # Pairs are numbered 01 02 03 12 13 23, so that pair 5 - p is the complement of p. Rows 2 and 3 must take
    # what rows 0 and 1 leave: the complements of both in either order, and when rows 0 and 1 are complements
    # themselves, any pair and its complement.
    split = s2[0] + s3[5]
    split_code = tl.zeros_like(split).to(tl.int32) + (0 | (5 << 3))
    for p in tl.static_range(1, 6):
        split, split_code = _better(split, split_code, s2[p] + s3[5 - p], p | ((5 - p) << 3))
    best = (s0[0] + s1[0]) + (s2[5] + s3[5])
    code = tl.zeros_like(best).to(tl.int32) + (0 | (0 << 3) | (5 << 6) | (5 << 9))
    for p in tl.static_range(6):
        for q in tl.static_range(6):
            upper = s0[p] + s1[q]
            if p + q == 5:
                best, code = _better(best, code, upper + split, (p | (q << 3)) | (split_code << 6))
            else:
                # In ascending order of the third pair: of equal totals the first pattern is kept.
                if p >= q:
                    total = upper + (s2[5 - p] + s3[5 - q])
                    best, code = _better(best, code, total, _code(p, q, 5 - p, 5 - q))
                    if p > q:
                        total = upper + (s2[5 - q] + s3[5 - p])
                        best, code = _better(best, code, total, _code(p, q, 5 - q, 5 - p))
                else:
                    total = upper + (s2[5 - q] + s3[5 - p])
                    best, code = _better(best, code, total, _code(p, q, 5 - q, 5 - p))
                    total = upper + (s2[5 - p] + s3[5 - q])
                    best, code = _better(best, code, total, _code(p, q, 5 - p, 5 - q))
    return code


@triton.jit
def _pair_mask(pair):  # type: ignore[no-untyped-def]
    # Four bits with the two columns of a pair set: 3 5 9 6 10 12, three bits apart of 4 each.
    return (0xCA6953 >> (4 * pair)) & 15


@triton.jit
def _nibble(mask):  # type: ignore[no-untyped-def]
    # i0 | i1 << 2 of a mask with two bits set.
    first = tl.where((mask & 1) != 0, 0, tl.where((mask & 2) != 0, 1, 2))
    second = tl.where((mask & 8) != 0, 3, tl.where((mask & 4) != 0, 2, 1))
    return first | (second << 2)


@triton.jit
def _pair(a, b, c, d, nibble):  # type: ignore[no-untyped-def]
    return _pick(a, b, c, d, nibble & 3) | (_pick(a, b, c, d, nibble >> 2) << 16)


@triton.jit
def _store_tile_words(metadata, nibbles, line: tl.constexpr, row_tile, group_tile, group_tiles):  # type: ignore[no-untyped-def]
    # nibbles: (16, 16) of rows 4 i + line and groups j of a block of 64 rows by two tiles.
    i = tl.arange(0, 16)[:, None]
    j = tl.arange(0, 16)[None, :]
    place = ((i >> 1) & 1) + 2 * ((j >> 2) & 1) + 4 * (j & 1)
    bits = (nibbles << (4 * place)).reshape(4, 2, 2, 2, 2, 2, 2)
    words = tl.sum(
        tl.sum(tl.sum(bits, 6), 4), 1
    )  # bits 5 4 of the row, bit 2 of the row, tile, bit 1 of the group
    high = tl.arange(0, 4)[:, None, None, None] * 16 + tl.arange(0, 2)[None, :, None, None] * 8 + 2 * line
    low = tl.arange(0, 2)[None, None, :, None] * _WORDS_OF_A_TILE + tl.arange(0, 2)[None, None, None, :]
    start = (row_tile * group_tiles + group_tile).to(tl.int64) * _WORDS_OF_A_TILE
    tl.store(metadata + start + high + low, words)


@triton.jit
def _tiles_kernel(  # type: ignore[no-untyped-def]
    weight,
    along,
    along_metadata,
    across,
    across_metadata,
    dense,
    row_groups,
    column_groups,
    BFLOAT: tl.constexpr,
):
    row_tile = tl.program_id(0)
    column_tile = tl.program_id(1)
    i = row_tile * 16 + tl.arange(0, 16)[:, None]
    j = column_tile * 16 + tl.arange(0, 16)[None, :]
    place = (4 * i).to(tl.int64) * column_groups + j
    g0 = tl.load(weight + place)
    g1 = tl.load(weight + place + column_groups)
    g2 = tl.load(weight + place + 2 * column_groups)
    g3 = tl.load(weight + place + 3 * column_groups)
    # Element of row r and column c is e[r][c].
    e = (
        (_element(g0, 0), _element(g0, 1), _element(g0, 2), _element(g0, 3)),
        (_element(g1, 0), _element(g1, 1), _element(g1, 2), _element(g1, 3)),
        (_element(g2, 0), _element(g2, 1), _element(g2, 2), _element(g2, 3)),
        (_element(g3, 0), _element(g3, 1), _element(g3, 2), _element(g3, 3)),
    )
    code = _best_pattern(
        _pair_sums(e[0][0], e[0][1], e[0][2], e[0][3], BFLOAT),
        _pair_sums(e[1][0], e[1][1], e[1][2], e[1][3], BFLOAT),
        _pair_sums(e[2][0], e[2][1], e[2][2], e[2][3], BFLOAT),
        _pair_sums(e[3][0], e[3][1], e[3][2], e[3][3], BFLOAT),
    )
    masks = (
        _pair_mask(code & 7),
        _pair_mask((code >> 3) & 7),
        _pair_mask((code >> 6) & 7),
        _pair_mask((code >> 9) & 7),
    )
    for r in tl.static_range(4):
        nibble = _nibble(masks[r])
        tl.store(along + place + r * column_groups, _pair(e[r][0], e[r][1], e[r][2], e[r][3], nibble))
        if dense is not None:
            kept = tl.where((masks[r] & 1) != 0, 0xFFFF, 0).to(tl.int64)
            kept |= tl.where((masks[r] & 2) != 0, 0xFFFF, 0).to(tl.int64) << 16
            kept |= tl.where((masks[r] & 4) != 0, 0xFFFF, 0).to(tl.int64) << 32
            kept |= tl.where((masks[r] & 8) != 0, 0xFFFF, 0).to(tl.int64) << 48
            group = tl.load(weight + place + r * column_groups)
            tl.store(dense + place + r * column_groups, group & kept)
        _store_tile_words(along_metadata, nibble, r, row_tile, 2 * column_tile, column_groups // 8)
    for c in tl.static_range(4):
        column_mask = (
            ((masks[0] >> c) & 1)
            | (((masks[1] >> c) & 1) << 1)
            | (((masks[2] >> c) & 1) << 2)
            | (((masks[3] >> c) & 1) << 3)
        )
        nibble = _nibble(column_mask)
        pair = _pair(e[0][c], e[1][c], e[2][c], e[3][c], nibble)
        transposed = (4 * j + c).to(tl.int64) * row_groups + i
        tl.store(across + transposed, pair)
        _store_tile_words(across_metadata, tl.trans(nibble), c, column_tile, 2 * row_tile, row_groups // 8)
