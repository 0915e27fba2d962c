"""The benchmark of 2:4 encoders: how answers are counted."""

from __future__ import annotations

from typing import Any

import numpy as np


def test_answers_are_looked_for_in_their_conversation(load: Any) -> None:
    benchmark = load("layers.encoder_sparsity")
    turns = [{"id": f"conv-{at // 12}:D1:{at % 12}"} for at in range(24)]
    questions = [
        {
            "id": "conv-0_q0",
            "relevant": [{"corpus_item_id": "conv-0:D1:3"}, {"corpus_item_id": "conv-0:D1:7"}],
        },
        {"id": "conv-1_q0", "relevant": [{"corpus_item_id": "conv-1:D1:0"}]},
    ]
    vectors = np.eye(24, dtype=np.float32)
    # Nearest to the right turn, and to a turn of another conversation.
    asked = np.zeros((2, 24), np.float32)
    asked[0, 3], asked[0, [4, 5, 6, 8, 9, 10, 11, 0, 1]] = 1.0, 0.5
    asked[1, 3], asked[1, 13:] = 1.0, 0.1
    found = benchmark._recall(turns, questions, vectors, asked, (vectors, asked))
    assert found == {"hit_at_1": 0.5, "recall_at_10": 0.25, "same_of_10": 1.0, "cosine": 1.0}
    other = benchmark._recall(turns, questions, vectors, -asked, (vectors, asked))
    assert other["same_of_10"] < 1.0
