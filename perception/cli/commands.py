"""What ``perceive --help`` says of each command, and which module is imported when it is called."""

from __future__ import annotations

from sparse_core.common.commands import Command

#: By name.
COMMANDS = {
    "demo": Command(
        "perception.cli.demo", "The first minute: detect and track on a simulated street of the package."
    ),
    "init": Command(
        "perception.cli.init", "Look at a folder of scans and labels and write what it is (dataset.yaml)."
    ),
    "detect": Command("perception.cli.detect.command", "Find objects in point clouds and draw them."),
    "track": Command(
        "perception.cli.track.command",
        "Follow objects through scans, or through the boxes of another detector.",
    ),
    "live": Command(
        "perception.cli.live.command",
        "Detect and track as scans come: a folder that grows, packets, a topic, a recording's own pace.",
    ),
    "eval": Command(
        "perception.cli.evaluate.command",
        "Average precision of a detector on a data set, or of results, by the protocol of the data:"
        " KITTI, nuScenes, or boxes.",
    ),
    "train": Command(
        "perception.cli.train.command",
        "Train a detector; run the same command again to resume a run that stopped. With several GPUs:"
        " torchrun --nproc-per-node N -m perception.cli train ...",
    ),
    "pseudo-label": Command(
        "perception.cli.pseudo_label",
        "Label the scans of a drive with what a detector is sure of and sees again, to train on.",
    ),
    "simulate": Command(
        "perception.cli.simulate", "Simulate LiDAR frames with exact labels; finished frames are kept."
    ),
    "convert": Command(
        "perception.cli.convert", "Write a data set of any kind in another layout; finished frames are kept."
    ),
    "convert-weights": Command(
        "perception.cli.convert_weights",
        "Make weights of a PointPillars checkpoint of OpenPCDet, mmdetection3d or zhulf0804.",
    ),
    "export": Command(
        "perception.cli.export", "Write a detector, from points to boxes, as a file that runs elsewhere."
    ),
    "push": Command("perception.cli.push", "Upload weights with a model card to the Hugging Face hub."),
    "doctor": Command(
        "perception.cli.doctor", "Say in words what is wrong with a data set; exit status 1 if something is."
    ),
    "bench": Command(
        "perception.cli.bench",
        "How long a frame takes on this machine: sparse against the dense twin and spconv, in turn.",
    ),
    "completion": Command(
        "sparse_core.common.completion", "Print a script that completes commands and options in a shell."
    ),
}
