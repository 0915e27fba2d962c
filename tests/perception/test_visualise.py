"""Pictures: they show what is in the frame, survive bad input, and the page stands on its own."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest

from perception import Tracker
from perception.types import Boxes3D, Detections, PointCloud
from perception.visualise import Player, birds_eye, draw_bev, web, write_html
from perception.visualise.packing import pack_points
from perception.visualise.palette import GROUND_TRUTH, class_colour
from perception.visualise.scene import detected, ground_corners, labelled

HOSTILE = """</script><script>alert("1")</script> {{data}} 'q' & <b> $x^{ $"""
VIEW = (0.0, -20.0, 40.0, 20.0)


def make_cloud(count: int = 3000, seed: int = 0) -> PointCloud:
    rng = np.random.default_rng(seed)
    points = np.column_stack(
        [
            rng.uniform(0, 40, count),
            rng.uniform(-20, 20, count),
            rng.normal(-1.5, 0.4, count),
            rng.random(count),
        ]
    )
    return PointCloud(points.astype(np.float32), source="/data/velodyne/000007.bin")


def make_detections() -> Detections:
    boxes = [
        [20, 5, -1, 4, 1.8, 1.5, 0.4],
        [12, -6, -1, 0.8, 0.7, 1.8, -1.2],
        [30, 8, -1, 1.8, 0.6, 1.7, 3.0],
    ]
    scores = np.array([0.91, 0.55, 0.2], np.float32)
    return Detections(np.array(boxes, np.float32), scores, ["Car", "Pedestrian", "Cyclist"])


def make_truth() -> Boxes3D:
    return Boxes3D(np.array([[25, -12, -1, 4, 1.8, 1.5, 1.0]], np.float32), ["Car"])


def pixels_near(path: Path, xy: np.ndarray, colour: str, radius_px: int = 3) -> int:
    """How many pixels around the place x, y (metres, in VIEW) have nearly the colour."""
    image = matplotlib.image.imread(path)[..., :3]
    points = np.zeros((0, 4), np.float32)
    view = birds_eye.fit_view(points, detected(None), labelled(None), VIEW)
    margin = np.array([birds_eye._LEFT_PX, birds_eye._TOP_PX])
    column, row = np.rint(view.to_pixels(xy)).astype(int) + margin
    patch = image[row - radius_px : row + radius_px + 1, column - radius_px : column + radius_px + 1]
    wanted = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return int((np.abs(patch - wanted).max(axis=-1) < 0.12).sum())


def pages_data(path: Path) -> dict[str, Any]:
    text = path.read_text("utf-8")
    match = re.search(r'<script type="application/json" id="frames">(.*?)</script>', text)
    assert match is not None
    data: dict[str, Any] = json.loads(match[1])
    stored = re.findall(r'<script type="text/plain" class="points">(.*?)</script>', text)
    for frame, points in zip(data["frames"], stored, strict=True):
        frame["points"]["base64"] = points
    return data


def page_data(path: Path) -> dict[str, Any]:
    """The only frame of a page."""
    (frame,) = pages_data(path)["frames"]
    return dict(frame)


def decoded_points(data: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """(N, 3) metres and (N,) intensity, as the page's script reads them."""
    raw, count = base64.b64decode(data["points"]["base64"]), data["points"]["count"]
    steps = np.frombuffer(raw, "<i2", count * 3).reshape(-1, 3)
    intensity = np.frombuffer(raw, np.uint8, count, offset=count * 6) / 255
    return steps * np.array(data["points"]["step"]) + np.array(data["points"]["origin"]), intensity


def test_tracks_are_named_by_their_identities(tmp_path: Path) -> None:
    box = np.array([[10.0, 2.0, -0.8, 4.0, 1.6, 1.5, 0.4]], np.float32)
    found, tracker = Detections(box, np.array([0.9], np.float32), ["Car"]), Tracker()
    tracks = [tracker.update(found, pose=np.eye(4)) for _ in range(3)][-1]
    drawn = detected(tracks)
    assert drawn.texts == [f"Car #1 {tracks.scores[0]:.2f}"]
    assert detected(found).texts == ["Car 0.90"]
    assert labelled(found).texts == ["Car"]
    cloud = PointCloud(np.random.default_rng(0).uniform(0, 1, (30, 4)).astype(np.float32))
    (box_data,) = page_data(write_html(tmp_path / "tracks.html", cloud, tracks))["detections"]
    assert (box_data["label"], box_data["track"]) == ("Car", 1)
    draw_bev(tmp_path / "tracks.png", cloud, tracks)
    draw_bev(tmp_path / "boxes.png", cloud, found)
    assert (tmp_path / "tracks.png").read_bytes() != (tmp_path / "boxes.png").read_bytes()


def test_corners_follow_the_heading() -> None:
    front_left = ground_corners(np.array([[10, 2, 0, 4, 2, 1, np.pi / 2]], np.float32))[0, 0]
    np.testing.assert_allclose(front_left, [9, 4], atol=1e-6)


class TestBirdsEye:
    def test_boxes_have_their_colours_at_their_places(self, tmp_path: Path) -> None:
        detections, truth = make_detections(), make_truth()
        path = draw_bev(
            tmp_path / "new" / "a.png", make_cloud(), detections, ground_truth=truth, range_m=VIEW
        )
        assert path == tmp_path / "new" / "a.png"
        for corner, label in zip(ground_corners(detections.boxes)[:, 0], detections.labels, strict=True):
            assert pixels_near(path, corner, class_colour(label).dark) >= 3
        sides = ground_corners(truth.boxes)[0]
        along = [sides[0] + (sides[1] - sides[0]) * share for share in np.linspace(0, 1, 9)]
        assert sum(pixels_near(path, place, GROUND_TRUTH.dark) for place in along) >= 5

    def test_threshold_removes_boxes(self, tmp_path: Path) -> None:
        detections = make_detections()
        path = draw_bev(tmp_path / "a.png", make_cloud(), detections, range_m=VIEW, score_threshold=0.5)
        corners = ground_corners(detections.boxes)[:, 0]
        assert pixels_near(path, corners[0], class_colour("Car").dark) >= 3
        assert pixels_near(path, corners[2], class_colour("Cyclist").dark) == 0

    def test_forward_is_up_and_left_is_left(self) -> None:
        view = birds_eye.fit_view(np.zeros((0, 4), np.float32), detected(None), labelled(None), VIEW)
        ahead, left = view.to_pixels(np.array([[30.0, 0.0], [10.0, 10.0]]))
        assert ahead[1] < left[1]
        assert left[0] < ahead[0]

    def test_points_fall_on_their_pixels(self) -> None:
        cloud = PointCloud(np.array([[30, 7, 0.5, 1], [900, 0, 0, 1]], np.float32))
        view = birds_eye.fit_view(cloud.points, detected(None), labelled(None), VIEW)
        strength = birds_eye.point_image(cloud.points, view, (-1.0, 1.0))[..., 3]
        row, column = np.unravel_index(np.argmax(strength), strength.shape)
        expected = np.floor(view.to_pixels(cloud.points[0, :2]))
        assert (column, row) == tuple(expected)
        assert np.count_nonzero(strength) == 9

    def test_view_fits_the_frame(self) -> None:
        cloud, found = make_cloud(), detected(make_detections())
        view = birds_eye.fit_view(cloud.points, found, labelled(None))
        corners = ground_corners(found.boxes).reshape(-1, 2)
        assert (corners > (view.x_min, view.y_min)).all()
        assert (corners < (view.x_max, view.y_max)).all()
        assert view.x_min <= 0 <= view.x_max
        assert view.height_px <= view.width_px

    def test_distance_looks_ahead_only_when_nothing_is_behind(self) -> None:
        cloud, none = make_cloud(), detected(None)
        around = np.concatenate([cloud.points, cloud.points * (-1, 1, 1, 1)]).astype(np.float32)
        assert birds_eye.fit_view(cloud.points, none, labelled(None), 30.0).x_min > -10
        assert birds_eye.fit_view(around, none, labelled(None), 30.0).x_min == -30

    @pytest.mark.parametrize("range_m", [0.0, -5.0, float("nan"), (0, 0, 0, 1), (0, 1, 2), (0, 0, np.inf, 1)])
    def test_bad_range(self, tmp_path: Path, range_m: Any) -> None:
        with pytest.raises(ValueError, match="range_m must be"):
            draw_bev(tmp_path / "a.png", make_cloud(), None, range_m=range_m)

    @pytest.mark.parametrize("title", [HOSTILE, "", "点云 кадр\nзаметка", "long " * 200, "bad \udcff name"])
    def test_any_title(self, tmp_path: Path, title: str) -> None:
        labels = [HOSTILE, "_private", "点"]
        detections = make_detections()
        strange = Detections(detections.boxes, detections.scores, labels)
        assert draw_bev(tmp_path / "a.png", make_cloud(10), strange, title=title).stat().st_size > 5000

    @pytest.mark.slow
    def test_five_million_points(self, tmp_path: Path) -> None:
        points = np.random.default_rng(0).normal(0, 30, (5_000_000, 4)).astype(np.float32)
        draw_bev(tmp_path / "a.png", PointCloud(points), None)

    def test_crowded_labels_do_not_overlap(self) -> None:
        centres = np.random.default_rng(1).uniform(0, 300, (60, 1, 2))
        quads = centres + np.array([[-8, -8], [8, -8], [8, 8], [-8, 8]])
        placed = [place for place in birds_eye.place_labels(quads, (31.0, 14.0), (300, 300)) if place]
        assert len(placed) >= 30
        gaps = np.abs(np.array(placed)[:, None] - np.array(placed))
        apart = (gaps >= (31.0, 14.0)).any(axis=-1) | np.eye(len(placed), dtype=bool)
        assert apart.all()


@pytest.mark.parametrize("write", [draw_bev, write_html])
@pytest.mark.parametrize(
    "points",
    [
        np.zeros((0, 4)),
        np.zeros((1, 4)),
        np.full((5, 4), np.nan),
        np.array([[np.inf, 0, 0, 0], [1, 2, np.nan, 0.5], [3, 4, 0, np.nan], [5, 6, 0, -np.inf]]),
        np.array([[3e38, -3e38, 3e38, 3e38], [-3e38, 3e38, -3e38, 1], [1, 1, 1, 1]]),
        np.tile([5.0, 5.0, 0.0, 0.3], (1000, 1)),
    ],
    ids=["empty", "one", "nan", "mixed", "huge", "same place"],
)
def test_awkward_clouds(tmp_path: Path, write: Any, points: np.ndarray) -> None:
    cloud = PointCloud(points.astype(np.float32))
    detections, truth = (make_detections(), make_truth()) if len(points) == 4 else (None, None)
    assert write(tmp_path / "out", cloud, detections, ground_truth=truth).stat().st_size > 5000


@pytest.mark.parametrize("write", [draw_bev, write_html])
def test_boxes_that_are_not_finite_are_left_out(tmp_path: Path, write: Any) -> None:
    boxes = make_detections().boxes.copy()
    boxes[0, 0], boxes[1, 6], boxes[2, :3] = np.nan, np.inf, 1e30
    detections = Detections(boxes, make_detections().scores, ["Car", "Car", "Car"])
    path = write(tmp_path / "out", make_cloud(10), detections, ground_truth=Boxes3D(boxes, ["a", "b", "c"]))
    assert path.exists()


@pytest.mark.parametrize("write", [draw_bev, write_html])
def test_same_input_same_bytes(tmp_path: Path, write: Any) -> None:
    first, second = (
        write(tmp_path / name, make_cloud(), make_detections(), ground_truth=make_truth()).read_bytes()
        for name in "ab"
    )
    assert first == second
    assert b"matplotlib" not in first


class TestPage:
    def test_points_survive_the_rounding(self, tmp_path: Path) -> None:
        cloud = make_cloud()
        xyz, intensity = decoded_points(page_data(write_html(tmp_path / "a.html", cloud, None)))
        np.testing.assert_allclose(xyz, cloud.points[:, :3], atol=20 / 32767)
        np.testing.assert_allclose(intensity, cloud.points[:, 3], atol=0.5 / 255 + 1e-6)

    def test_map_coordinates_and_strays_keep_the_resolution(self, tmp_path: Path) -> None:
        points = make_cloud().points + np.array([500_000, 4_000_000, 100, 0], np.float32)
        strays = np.array([[9e9, 0, 0, 0]], np.float32)
        path = write_html(tmp_path / "a.html", PointCloud(np.concatenate([points, strays])), None)
        xyz, _ = decoded_points(page_data(path))
        np.testing.assert_allclose(xyz, points[:, :3].astype(np.float64), atol=0.002)
        assert "Skipped 1 point: more than 1000 m from the centre." in path.read_text("utf-8")

    def test_intensity_to_255_is_scaled(self) -> None:
        points = make_cloud().points * np.array([1, 1, 1, 255], np.float32)
        packed = pack_points(points, web.MAX_POINTS)
        np.testing.assert_allclose(packed.intensity, points[:, 3], atol=0.51)

    def test_boxes_and_rows(self, tmp_path: Path) -> None:
        detections, truth = make_detections(), make_truth()
        path = write_html(tmp_path / "new" / "a.html", make_cloud(), detections, ground_truth=truth)
        data, text = page_data(path), path.read_text("utf-8")
        np.testing.assert_allclose([box["box"] for box in data["detections"]], detections.boxes, atol=1e-4)
        assert [box["label"] for box in data["detections"]] == detections.labels
        np.testing.assert_allclose([box["box"] for box in data["truth"]], truth.boxes, atol=1e-4)
        assert data["summary"] == "3,000 points · 3 detections · 1 labelled"
        assert "<h1>000007.bin</h1>" in text
        assert "/data/velodyne" not in text

    def test_threshold(self, tmp_path: Path) -> None:
        data = page_data(
            write_html(tmp_path / "a.html", make_cloud(), make_detections(), score_threshold=0.5)
        )
        assert [box["label"] for box in data["detections"]] == ["Car", "Pedestrian"]

    def test_text_is_escaped(self, tmp_path: Path) -> None:
        base = make_detections()
        detections = Detections(
            base.boxes, base.scores, [HOSTILE, "b\udcff", "{{style}}"], warnings=(HOSTILE,)
        )
        path = write_html(tmp_path / "a.html", make_cloud(10), detections, title=HOSTILE)
        text = path.read_text("utf-8")
        assert "alert(" in text
        assert "<script>alert" not in text
        assert "<b>" not in text
        assert text.count("<script") == text.count("</script>") == 3
        assert page_data(path)["detections"][0]["label"] == HOSTILE
        assert page_data(path)["detections"][2]["label"] == "{{style}}"

    def test_nothing_is_loaded(self, tmp_path: Path) -> None:
        text = write_html(tmp_path / "a.html", make_cloud(10), make_detections()).read_text("utf-8")
        assert not re.search(r"https?:|//cdn|@import|\bfetch\(|XMLHttpRequest", text)
        assert set(re.findall(r'(?:src|href)="([^"]*)"', text)) == {"data:,"}

    def test_thinning_is_even_and_said(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(web, "MAX_POINTS", 1000)
        cloud = make_cloud(3000)
        path = write_html(tmp_path / "a.html", cloud, None)
        assert "Showing 1,000 of 3,000 points, spread evenly." in path.read_text("utf-8")
        np.testing.assert_allclose(decoded_points(page_data(path))[0], cloud.points[::3, :3], atol=0.001)

    def test_notes_name_what_is_missing(self, tmp_path: Path) -> None:
        points = make_cloud(10).points.copy()
        points[:2, 1] = np.nan
        detections = Detections.empty(warnings=("capacity overflow",))
        text = write_html(tmp_path / "a.html", PointCloud(points), detections).read_text("utf-8")
        assert '["Skipped 2 points: not finite.","capacity overflow"]' in text

    @pytest.mark.parametrize(("count", "limit"), [(20_000, 400_000), (120_000, 2_000_000)])
    def test_size(self, tmp_path: Path, count: int, limit: int) -> None:
        path = write_html(tmp_path / "a.html", make_cloud(count), make_detections())
        assert path.stat().st_size < limit


class TestPlayer:
    def test_frames_keep_their_order_names_times_and_poses(self, tmp_path: Path) -> None:
        tracker, pose = Tracker(), np.eye(4)
        with Player(tmp_path / "new" / "a.html", title="drive") as player:
            for number in range(3):
                pose[0, 3] = 0.1 * number
                tracks = tracker.update(make_detections(), pose=pose, time_ns=10**18 + number * 10**8)
                player.add(
                    make_cloud(50, seed=number), tracks, name=f"{number:06}", time_ns=tracks.timestamp_ns
                )
        frames = pages_data(player.path)["frames"]
        assert [frame["name"] for frame in frames] == ["000000", "000001", "000002"]
        assert [frame["time"] for frame in frames] == [str(10**18 + k * 10**8) for k in range(3)]
        assert [frame["pose"][3] for frame in frames] == pytest.approx([0.0, 0.1, 0.2])
        assert {box["track"] for frame in frames for box in frame["detections"]} >= {1, 2}
        for number, frame in enumerate(frames):
            np.testing.assert_allclose(
                decoded_points(frame)[0], make_cloud(50, seed=number).points[:, :3], atol=0.001
            )
        assert str(player).endswith("a.html: 3 frames, 0.1 MB")

    def test_frames_share_the_points(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in (("MAX_POINTS", 800), ("ALL_POINTS", 2000), ("LEAST_POINTS", 300)):
            monkeypatch.setattr(web, name, value)
        for count, share in ((1, 800), (4, 500), (10, 300)):
            with Player(tmp_path / "a.html", title="drive") as player:
                for _ in range(count):
                    player.add(make_cloud(3000), None)
            frames = pages_data(player.path)["frames"]
            assert [frame["points"]["count"] for frame in frames] == [share] * count
            assert all(
                frame["notes"] == [f"Showing {share} of 3,000 points, spread evenly."] for frame in frames
            )

    def test_many_frames_are_thinned_evenly(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(web, "MAX_FRAMES", 4)
        with Player(tmp_path / "a.html", title="drive") as player:
            for number in range(11):
                player.add(make_cloud(5), None, name=str(number))
        frames = pages_data(player.path)["frames"]
        assert [frame["name"] for frame in frames] == ["0", "4", "8"]
        assert frames[0]["notes"] == ["Showing 3 of 11 frames, spread evenly."]
        assert "3 of 11 frames" in str(player)

    def test_an_interrupted_run_leaves_a_page(self, tmp_path: Path) -> None:
        def run(player: Player) -> None:
            with player:
                player.add(make_cloud(5), None)
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(Player(tmp_path / "a.html", title="drive"))
        assert len(pages_data(tmp_path / "a.html")["frames"]) == 1

    def test_no_frames_no_page(self, tmp_path: Path) -> None:
        with Player(tmp_path / "a.html", title="drive") as player:
            pass
        assert not player.path.exists()
        with pytest.raises(IsADirectoryError, match="is a folder; choose a file name"):
            Player(tmp_path, title="drive")


class TestInBrowser:
    """The script runs: needs a Chromium in PATH."""

    def dump(self, page: Path, *, webgl: bool = True) -> str:
        names = ("chromium", "chromium-browser", "google-chrome", "chrome")
        browser = next((found for name in names if (found := shutil.which(name))), None)
        if browser is None:
            pytest.skip("no Chromium in PATH")
        graphics = ["--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
        flags = [
            "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={page.parent / 'profile'}", "--virtual-time-budget=4000", "--dump-dom",
            *(graphics if webgl else ["--disable-3d-apis"]),
        ]  # fmt: skip
        done = subprocess.run([browser, *flags, page.as_uri()], capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run_page(self, tmp_path: Path, script: str = "", *, webgl: bool = True) -> str:
        """The page after ``script`` ran in it."""
        page = write_html(tmp_path / "a.html", make_cloud(), make_detections(), ground_truth=make_truth())
        later = f"<script>setTimeout(() => {{ {script} }}, 500);</script></body>"
        page.write_text(page.read_text("utf-8").replace("</body>", later), "utf-8")
        return self.dump(page, webgl=webgl)

    def visible_rows(self, dom: str) -> list[str]:
        rows = re.findall(r'<tr data-box="(d\d+)"([^>]*)>', dom)
        return [name for name, attributes in rows if "hidden" not in attributes]

    @pytest.mark.slow
    def test_draws_and_lists(self, tmp_path: Path) -> None:
        dom = self.run_page(tmp_path)
        assert "data-error" not in dom
        assert 'data-state="ready"' in dom
        assert self.visible_rows(dom) == ["d0", "d1", "d2"]
        assert "3 of 3" in dom

    @pytest.mark.slow
    def test_score_and_keys(self, tmp_path: Path) -> None:
        key = "byId('view').dispatchEvent(new KeyboardEvent('keydown', {key: '%s'}));"
        script = "byId('score').value = 0.5; byId('score').dispatchEvent(new Event('input'));"
        dom = self.run_page(
            tmp_path, script + "".join(key % name for name in ["n", "n", "c", "g", "ArrowUp", "t"])
        )
        assert "data-error" not in dom
        assert self.visible_rows(dom) == ["d0", "d1"]
        assert "2, Pedestrian, score 0.55, 13.4 metres away." in dom

    @pytest.mark.slow
    def test_clicking_a_row_focuses_the_box(self, tmp_path: Path) -> None:
        dom = self.run_page(tmp_path, "document.querySelector('tr[data-box=d0] button').click(); drawNow()")
        assert "data-error" not in dom
        assert re.search(r'<tr data-box="d0" class="picked">.*?aria-pressed="true"', dom)
        assert re.search(r'<span class="picked"[^>]*>1 Car 0.91</span>', dom)

    @pytest.mark.slow
    def test_without_webgl_the_table_stays(self, tmp_path: Path) -> None:
        dom = self.run_page(tmp_path, webgl=False)
        assert "data-error" not in dom
        assert 'data-state="no-webgl"' in dom
        assert "offers no WebGL" in dom
        assert self.visible_rows(dom) == ["d0", "d1", "d2"]

    @pytest.mark.slow
    def test_hostile_text_does_not_run(self, tmp_path: Path) -> None:
        base = make_detections()
        detections = Detections(base.boxes, base.scores, [HOSTILE] * 3)
        dom = self.dump(write_html(tmp_path / "a.html", make_cloud(10), detections, title=HOSTILE))
        assert "data-error" not in dom
        assert 'data-state="ready"' in dom

    def test_a_drive_plays(self, tmp_path: Path) -> None:
        """Tracks over four frames: steps, follows what was picked, plays to the end."""
        tracker, scores = Tracker(), np.array([0.95, 0.85, 0.8], np.float32)
        with Player(tmp_path / "a.html", title=HOSTILE) as player:
            for number in range(4):
                # The third is not seen at the end.
                found = replace(make_detections(), scores=scores)[: 3 if number < 2 else 2]
                tracks = tracker.update(found, pose=np.eye(4), time_ns=number * 10**8)
                player.add(make_cloud(200, seed=number), tracks[tracks.missed_s == 0], name=f"{number:06}")
        told = """
          const said = [];
          const tell = (...what) => said.push(what.join(" "));
          const rowCount = () => rows.filter((row) => !row.hidden).length;
          const now = () => tell(state.frame, rowCount(), state.picked);
          const key = (name) => {
            document.body.dispatchEvent(new KeyboardEvent("keydown", {key: name, bubbles: true}));
            now();
          };
          now(); pick("d1"); key("."); key("]"); key(",");
          tell(byId("clock").textContent); tell(trailOf(detections[0].track).length);
          byId("score").value = 0.9; byId("score").dispatchEvent(new Event("input")); key(" ");
          const end = () => { now(); tell(byId("play").getAttribute("aria-label")); };
          setTimeout(() => { end(); document.body.dataset.told = said.join("|"); }, 1000);
        """
        later = f"<script>setTimeout(() => {{ {told} }}, 300);</script></body>"
        player.path.write_text(player.path.read_text("utf-8").replace("</body>", later), "utf-8")
        dom = self.dump(player.path)
        assert "data-error" not in dom
        match = re.search(r'data-told="([^"]*)"', dom)
        assert match is not None
        assert match[1] == "0 3 |1 3 d1|3 2 d1|2 2 d1|3 of 4 · 0.2 s|3|2 1 |3 1 |Play"
