"""The three summary tables of README, and the tables of whole frames."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.publish.text import Block, Column, Table, Text, Values, markdown_table, times
from benchmarks.publish.weights import car

#: Variants of the detector's benchmark: words, and which other is one.
_ON_A_CPU = (
    ("sparse", "**sparse** (float32)", None),
    ("sparse spconv", "sparse on spconv (Native)", "sparse"),
    ("dense", "dense baseline", "sparse"),
    ("dense compiled", "dense baseline, compiled", "sparse"),
    ("sparse bf16", "sparse, bfloat16", None),
    ("dense bf16", "dense baseline, bfloat16", "sparse bf16"),
    ("dense compiled bf16", "dense baseline, compiled, bfloat16", "sparse bf16"),
)

#: Cases of the frame's benchmark on a GPU, in words.
_FRAMES = {
    "view": "view of the camera, 18k points, 0.16 m, with a vector for each box",
    "view, refined once": "the same, refined once (`perceive detect --budget-ms`)",
    "whole scan": "whole scan, 116k points",
    "whole scan, all around": "whole scan, 164 m square all around",
    "highway": "highway of 300 m, 614 m square",
    "8 frames a call": "8 frames in one call",
    "pillars of 0.075 m": "pillars of 0.075 m",
    "range x4": "4 times the range both ways, same points",
    "range x4, as full everywhere": "the same, as full everywhere, 283k points",
}


def _detector(values: Values) -> str:
    rows = []
    for name, words, opponent in _ON_A_CPU:
        variant = values["variants"][name]
        over = "1"
        if opponent is not None:
            found = values["ratios"].get(f"{name} / {opponent}")
            ratio = variant["time"]["median_ms"] / values["variants"][opponent]["time"]["median_ms"]
            over = f"{ratio if found is None else found['median']:.1f} x"
            if found is not None:
                over += f" (quartiles {found['lower_quartile']:.1f} to {found['upper_quartile']:.1f})"
        median, memory = variant["time"]["median_ms"], variant["memory"]["delta_mb"]
        rows.append([words, f"{median:.0f}", f"{memory:.0f}", over])
    heads = ["", "median ms", "peak memory of the run, MB", "against sparse of the same precision"]
    return markdown_table(heads, rows)


def _spread(side: Values) -> str:
    return f"{side['p50_ms']:.3f} ({side['p99_ms']:.3f})"


def _frames(values: Values) -> str:
    cases = {case["case"]: case for case in values["cases"]}
    rows = []
    for name, words in _FRAMES.items():
        case = cases[name]
        sparse, dense = case["sides"]["sparse"], case["sides"]["dense twin"]
        taken_ms = [_spread(side) for side in (sparse, dense)]
        if case["batch"] > 1:
            taken_ms = [
                f"{side['p50_ms']:.3f}: {side['frames_per_s']:,} frames/s" for side in (sparse, dense)
            ]
        # A twin that needs no more than the cases before it shows nothing, or less.
        memory = [f"{side['memory_mb']:,.0f}" if side["memory_mb"] > 0 else "–" for side in (sparse, dense)]
        rows.append([words, *taken_ms, times(case["dense_over_sparse"]), " / ".join(memory)])
        if without := case["sides"].get("sparse without vectors"):
            rows.append(["the same without vectors", _spread(without), "", "", ""])
    heads = ["median ms (99th percentile)", "sparse", "dense baseline", "ratio to sparse", "memory, MB"]
    return markdown_table(heads, rows)


_SITES = ((3000, 64), (15000, 64), (3000, 128), (15000, 128), (15000, 256), (50000, 256))


def _with_map(side: str) -> Callable[[Values], str]:
    return lambda case: " / ".join(
        f"{case['device_us'][name]['median']:.0f}" for name in (f"{side} + map", side)
    )


_CONVOLUTION = Table(
    "conv-cuda",
    lambda values: [case for case in values["sites"] if (case["sites"], case["channels"]) in _SITES],
    lambda values: [
        Column("active cells", "sites", ",d"),
        Column("channels", "channels"),
        Column("ours, in a graph", _with_map("ours, graph")),
        Column("ours, eager", _with_map("ours, eager")),
        *(
            Column(library, _with_map(library))
            for library in ("spconv", "spconv-triton")
            if all(library in case["device_us"] for case in values["sites"])
        ),
    ],
)


def _accuracy(folds: Values, found: Values, weights: Values, tracking: Values) -> str:
    cars = {
        name: " / ".join(f"{level:.1f}" for level in row["car_3d"]) for name, row in weights["rows"].items()
    }
    small = weights["rows"]["2:4+int8 tuned"]["file_bytes"] / 1e6
    whole = weights["rows"]["float16"]["file_bytes"] / 1e6
    tracks = tracking["cases"]
    sequences = f"{len(tracking['settings']['sequences'])} KITTI sequences, boxes of PointRCNN"
    moderate = " / ".join(f"{folds['AP40'][label]['3d'][1]:.1f}" for label in folds["AP40"])
    rows = [
        [
            f"{' / '.join(folds['AP40'])} 3D AP40, moderate",
            f"KITTI, {folds['frames']} frames, 5-fold cross-validation by drive",
            moderate,
            "dense baseline not measured",
        ],
        [
            "Car 3D AP40, easy / moderate / hard",
            f"KITTI, {found['frames']['val']} validation frames",
            car(found, "pointpillars-kitti", "val"),
            f"dense baseline: {car(found, 'pointpillars-kitti-dense', 'val')}",
        ],
        [
            f"the same, weights of {small:.1f} MB (2:4, int8)",
            "the same frames",
            cars["2:4+int8 tuned"],
            f"float16, {whole:.1f} MB: {cars['float32']}",
        ],
        [
            "sAMOTA, online tracking",
            sequences,
            f"{100 * tracks['online']['samota']:.1f}",
            f"AB3DMOT's method: {100 * tracks['baseline']['samota']:.1f}",
        ],
        [
            "HOTA, online tracking",
            "the same sequences",
            f"{100 * tracks['online']['hota']:.1f}",
            f"AB3DMOT's method: {100 * tracks['baseline']['hota']:.1f}",
        ],
    ]
    return markdown_table(["metric", "data", "Sparsight", "baseline"], rows)


def _memory(memory: Values, drive: Values, sentences: Values) -> str:
    inserts = {(row["side"], row["way"]): row["rows_s"] for row in memory["inserts"]}
    filtered = {row["side"]: row for row in memory["filtered"] if row["selectivity"] == 0.01}
    right = {
        name: f"{100 * part['figures']['right_share']['mean']:.1f} %"
        for name, part in drive["summary"].items()
    }
    recall = {side["name"]: f"{side['all']['recall']:.3f}" for side in sentences["sides"]}

    def fastest(side: str) -> str:
        rates = [
            row["queries_s"] for row in memory["searches"] if row["side"] == side and row["recall"] >= 0.99
        ]
        return f"{max(rates):,.0f}"

    def inserted(way: str, *sides: str) -> str:
        return ", ".join(f"{side} {inserts[side, way]:,.0f}" for side in sides)

    def window(side: str) -> str:
        return f"{filtered[side]['recall']:.3f}, {filtered[side]['p99_ms']:.1f} ms"

    peers = ("LanceDB", "Qdrant Edge")
    rows = [
        [
            "durable inserts/s, one memory per commit",
            f"{inserts['ours', 'one by one']:,.0f}",
            inserted("one by one", *peers),
        ],
        [
            "durable inserts/s, 5,000 memories per commit",
            f"{inserts['ours', '5,000 together']:,.0f}",
            inserted("5,000 together", *peers),
        ],
        [
            "queries/s at recall@10 of at least 0.99",
            f"lsh (default) {fastest('ours, LSH')}, faiss {fastest('ours, faiss')}",
            ", ".join(
                f"{side} {fastest(side)}" for side in ("faiss IVF", "hnswlib", "Qdrant Edge", "LanceDB")
            ),
        ],
        [
            "query in a time window with 1 % of the memories: recall@10, p99",
            window("ours, LSH"),
            f"LanceDB {window('LanceDB, filter first')}; Qdrant Edge {window('Qdrant Edge')}",
        ],
        [
            "recall@10 of text queries, LoCoMo conversations, cross-validated",
            recall["`text=` alone, cross-validated over conversations"],
            f"BM25 with stemming {recall['and by stems']}",
        ],
        [
            f"correct answers after a week in {len(drive['seeds'])} simulated towns",
            right["ours"],
            f"store that keeps everything {right['everything']}",
        ],
    ]
    return markdown_table(["metric", "Sparsight", "baseline"], rows)


def _gpu(result: Values) -> str:
    """The model of the GPU of a result: its second word."""
    model: str = result["environment"]["hardware"]["gpu"]["model"]
    return model.split()[1]


def _speed(
    frames: Values, layers: Values, attention: Values, calls: Values, cpu_calls: Values, precisions: Values
) -> str:
    call = {row["call"]: row for row in calls["calls"]}["detector(points)"]
    # Several benchmarks have a row with these words; the first one counts.
    on_cpu = {row["call"]: row for row in reversed(cpu_calls["calls"])}["detector(points)"]
    cases = {case["case"]: case for case in frames["cases"]}
    sides = {side["side"]: side for side in precisions["sides"]}
    int8, peer = sides["int8"], sides["OpenVINO, int8, network alone"]

    def frame(name: str, words: str) -> list[str]:
        sparse, dense = (cases[name]["sides"][side]["p50_ms"] for side in ("sparse", "dense twin"))
        over = f"{cases[name]['dense_over_sparse']:.1f}"
        return [words, _gpu(frames), f"{sparse:.3f} ms", f"dense baseline: {dense:.3f} ms", over]

    (layer,) = (
        case
        for case in layers["cases"]
        if (case["out"], case["columns"], case["rows"], case["dtype"]) == (4096, 4096, 4096, "bfloat16")
    )
    (blocks,) = (
        case for case in attention["cases"] if case["key"] == "random-0.1-16384-64-128-bfloat16-forward"
    )
    us = {name: blocks["microseconds"][name]["median"] for name in ("ours", "FlashAttention-4", "cuDNN")}
    rows = [
        frame("view", "CUDA graph of a frame, camera view"),
        [
            "`detector(points)`, host to host",
            _gpu(calls),
            f"{call['value']:.2f} ms",
            f"dense baseline, same API: {call['value'] * call['times']:.2f} ms",
            f"{call['times']:.1f}",
        ],
        [
            "`detector(points)`, float32",
            "CPU, 2 cores",
            f"{on_cpu['value']:.0f} ms",
            f"dense baseline, same API: {on_cpu['value'] * on_cpu['times']:.0f} ms",
            f"{on_cpu['times']:.1f}",
        ],
        [
            "the same, int8, processor time",
            "CPU",
            f"{int8['median_ms']:.0f} ms",
            f"OpenVINO, int8, dense network alone: {peer['median_ms']:.0f} ms",
            f"{peer['over_int8']:.1f}",
        ],
        [
            "2:4 layer 4096 x 4096, 4,096 rows, bfloat16",
            _gpu(layers),
            "in a CUDA graph",
            "`nn.Linear` in a CUDA graph",
            f"{layer['over_dense']['median']:.2f}",
        ],
        [
            "attention, 16,384 tokens, 10 % of the blocks",
            _gpu(attention),
            f"{us['ours'] / 1e3:.2f} ms",
            f"FlashAttention-4, the same blocks: {us['FlashAttention-4'] / 1e3:.2f} ms; cuDNN, all blocks: "
            f"{us['cuDNN'] / 1e3:.2f} ms",
            f"{blocks['over_fa4']['median']:.2f}; {blocks['over_dense']['median']:.1f}",
        ],
    ]
    return markdown_table(["task", "device", "Sparsight", "baseline", "speed-up"], rows)


BLOCKS: dict[str, Block] = {
    "detector-cpu": Text(("detector-cpu",), _detector),
    "frame-cuda": Text(("frame-cuda",), _frames),
    "conv-cuda": _CONVOLUTION,
    # README links to the pages that carry the notes on historical files.
    "summary-accuracy": Text(
        ("folds", "weights-cpu", "compression-accuracy", "tracking-cpu"), _accuracy, noted=False
    ),
    "summary-memory": Text(("memory-cpu", "drive-cpu", "sentences-cpu"), _memory, noted=False),
    "summary-speed": Text(
        (
            "frame-cuda",
            "nm_linear-cuda",
            "sparse_attention-cuda",
            "calls-cuda",
            "calls-cpu",
            "precisions-cpu",
        ),
        _speed,
        noted=False,
    ),
}
