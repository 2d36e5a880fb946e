"""Pictures are read as they were written, or refused in one sentence; their scale is known, and so are their copies."""

import builtins
import gzip
import io
import math
import struct

import numpy as np
import pytest

from unnorm.data.kinds import Asked, Origin, count_of
from unnorm.data.pictures import PictureKind, PictureSchema, png_of, sheet
from unnorm.data.recognise import kind_of
from unnorm.errors import InputError
from unnorm.report.pictures import _verdict, neighbours
from unnorm.runs import ready
from unnorm.spaces import Categorical, Conditioned, Real

Image = pytest.importorskip("PIL.Image")
RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (24, 5, 6), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (24, 5, 6, 3), dtype=np.uint8)
KIND = PictureKind()


def saved(folder, arrays, name="{:02d}.png"):
    folder.mkdir(exist_ok=True, parents=True)
    for i, array in enumerate(arrays):
        Image.fromarray(array).save(folder / name.format(i))
    return folder


def read(path, *conditions):
    origin = Origin(path, Asked(None, conditions))
    assert kind_of(origin).name == "images"
    return KIND.read(origin)


def refusal(path, *conditions):
    with pytest.raises(InputError) as error:
        KIND.read(Origin(path, Asked(None, conditions)))
    assert "\n" not in str(error.value)
    return str(error.value)


LABELLED = ("a.npz", "z-images-idx3-ubyte.gz")


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def test_the_same_pictures_come_from_every_format(tmp_path):
    np.save(tmp_path / "a.npy", GREY)
    np.savez(tmp_path / "a.npz", x=GREY, y=np.arange(24) % 3)
    (tmp_path / "t-images-idx3-ubyte").write_bytes(idx(GREY))
    (tmp_path / "z-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(GREY)))
    (tmp_path / "z-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx((np.arange(24) % 3).astype(np.uint8))))
    names = (saved(tmp_path / "folder", GREY).name, "a.npy", "a.npz", "t-images-idx3-ubyte", "z-images-idx3-ubyte.gz")
    for name in names:
        found = read(tmp_path / name)
        assert np.array_equal(found.points[..., 0], GREY) and found.space == Real((5, 6, 1)), name
        said = found.remarks[-2 if found.condition is None and name in LABELLED else -1]
        assert found.schema.to_dict()["levels"] == 256 and "24 pictures of 6 x 5, grey, 256 levels" in said
    for name in LABELLED:
        labelled = read(tmp_path / name, "label")
        assert labelled.condition.tolist() == (np.arange(24) % 3).tolist()
        assert labelled.schema.condition == Categorical((), 3)
    # Control: a table of as many numbers is none.
    np.save(tmp_path / "flat.npy", GREY.reshape(24, -1))
    assert kind_of(Origin(tmp_path / "flat.npy")).name == "table"


def test_folders_in_a_folder_are_labels(tmp_path):
    for name, part in (("cats", COLOUR[:12]), ("dogs", COLOUR[12:])):
        saved(tmp_path / "all" / name, part)
    (tmp_path / "all" / "notes.txt").write_text("mine")
    found = read(tmp_path / "all", "label")
    assert np.array_equal(found.points, COLOUR) and found.condition.tolist() == [0] * 12 + [1] * 12
    assert any("1 files" in remark and "left out" in remark for remark in found.remarks)
    schema = found.schema
    assert schema.given({"label": "dogs"}) == 1
    for wrong, words in (
        ({"label": "birds"}, "no label 'birds'; the labels are cats, dogs"),
        ({}, "'label' is not given"),
    ):
        with pytest.raises(InputError, match=words):
            schema.given(wrong)
    prepared = ready(found, 0)
    assert isinstance(prepared.train, Conditioned) and prepared.train.condition.dtype == np.int32
    # Every picture kept its own label: the split moved both.
    place = {picture.tobytes(): label for picture, label in zip(schema.to_points(COLOUR), found.condition, strict=True)}
    assert all(place[x.tobytes()] == c for x, c in zip(*prepared.train, strict=True))
    assert "no labels" in refusal(saved(tmp_path / "plain", COLOUR), "label")
    assert "called label" in refusal(tmp_path / "all", "kind")


def test_other_pictures_are_read_by_the_labels_and_the_scale_of_the_model(tmp_path):
    """Label `dogs` is number 1 of a model of cats and dogs, also in a folder of dogs alone."""
    for name, part in (("cats", COLOUR[:12]), ("dogs", COLOUR[12:])):
        saved(tmp_path / "all" / name, part)
    schema = read(tmp_path / "all", "label").schema

    def like(values, labels=("dogs",) * 3):
        np.savez(tmp_path / "other.npz", x=values, y=np.array(labels))
        return KIND.read_like(Origin(tmp_path / "other.npz", Asked(None, ("label",))), schema)

    assert like(COLOUR[:3]).condition.tolist() == [1, 1, 1]
    assert like(COLOUR[:3], ["cats", "dogs", "cats"]).condition.tolist() == [0, 1, 0]
    wrong = (
        (lambda: like(COLOUR[:3], ["birds", "dogs", "cats"]), "label 'birds', which the model has never seen"),
        (lambda: like(COLOUR[:3] / 255), "and those of the model from 0 to 255 in whole numbers"),
        (lambda: like(COLOUR[:3].astype(int) + 300), "the same scale"),
        (lambda: schema.rows_of(COLOUR), "as in \\(pictures, labels\\)"),
        (lambda: schema.rows_of((COLOUR, [0])), "give one for each"),
        (lambda: schema.rows_of(([COLOUR[0], COLOUR[0, :2]], [0, 1])), "unequal sizes"),
    )
    for attempt, words in wrong:
        with pytest.raises(InputError, match=words):
            attempt()
    # Shares stay shares: a model of numbers from 0 to 1 takes no levels.
    np.save(tmp_path / "shares.npy", RNG.random((24, 5, 6)))
    np.save(tmp_path / "levels.npy", GREY)
    shares = read(tmp_path / "shares.npy").schema
    with pytest.raises(InputError, match="the same scale"):
        KIND.read_like(Origin(tmp_path / "levels.npy"), shares)
    assert len(KIND.read_like(Origin(tmp_path / "shares.npy"), shares)) == 24


def test_values_lie_between_minus_one_and_one_and_come_back():
    for low, high, levels in ((0.0, 255.0, 256), (0.0, 16.0, 17), (0.0, 65535.0, 65536)):
        schema = PictureSchema((2, 2, 1), low, high, levels)
        written = np.linspace(0, levels - 1, 400).round().reshape(100, 2, 2, 1)
        points = schema.to_points(written)
        assert points.min() == -1 and points.max() == 1 and points.dtype == np.float32
        assert np.array_equal(schema.written(points), written)
        again = KIND.schema_from(schema.to_dict())
        assert again == schema or again.to_dict() == schema.to_dict()
    inside = PictureSchema((1, 1, 1), 0.0, 255.0, 256)
    assert inside.written(np.array([[[[1.2]]]])).item() == 255 and inside.exact().written(np.array([[[[1.2]]]])) > 255


def test_noise_spread_over_the_steps_takes_as_many_bits_as_there_are_levels():
    """The uniform density over all levels: log2 L bits for each pixel; without the change of measure it is not."""
    for levels in (17, 256):
        schema = PictureSchema((3, 3, 1), 0.0, levels - 1.0, levels)
        assert schema.rounding is not None
        step = schema.rounding.step
        log_density = -9 * math.log(2 + step)
        assert schema.bits_per_dimension(log_density - schema.log_volume) == pytest.approx(math.log2(levels))
        assert abs(schema.bits_per_dimension(log_density) - math.log2(levels)) > 1
    assert PictureSchema((3, 3, 1), 0.0, 1.0).rounding is None


def test_the_digits_are_scikit_learn_s():
    datasets = pytest.importorskip("sklearn.datasets")
    digits = datasets.load_digits()
    found = read("digits", "label")
    assert np.array_equal(found.points[..., 0], digits.images) and np.array_equal(found.condition, digits.target)
    assert found.schema.to_dict()["levels"] == 17 and count_of(found.rows) == 1797


def test_what_is_wrong_with_pictures_is_one_sentence(tmp_path):
    many = saved(tmp_path / "sizes", [*GREY[:22], GREY[22, :4], GREY[23, :4]])
    assert "2 sizes (22 of 6 x 5, 2 of 6 x 4; '22.png'" in refusal(many)
    broken = saved(tmp_path / "broken", GREY)
    (broken / "07.png").write_bytes((broken / "07.png").read_bytes()[:40])
    assert "07.png' is no whole picture" in refusal(broken)
    (broken / "07.png").write_text("hello")
    assert "07.png' is no whole picture" in refusal(broken)
    assert "has 1 picture, but" in refusal(saved(tmp_path / "one", GREY[:1]))
    assert "need some contrast" in refusal(saved(tmp_path / "dark", np.zeros((24, 5, 6), np.uint8)))
    np.save(tmp_path / "first.npy", RNG.random((24, 3, 9, 9)))
    assert "transpose(0, 2, 3, 1)" in refusal(tmp_path / "first.npy")
    for shape in ((0, 5, 6), (24, 0, 6)):
        np.save(tmp_path / "none.npy", np.zeros(shape))
        assert "holds no pictures" in refusal(tmp_path / "none.npy")
    np.save(tmp_path / "nan.npy", np.full((24, 3, 3), np.nan))
    assert "not finite" in refusal(tmp_path / "nan.npy")
    np.savez(tmp_path / "y.npz", x=GREY, y=np.arange(5))
    assert "give one for each" in refusal(tmp_path / "y.npz")
    whole = io.BytesIO()
    np.save(whole, GREY)
    (tmp_path / "cut.npy").write_bytes(whole.getvalue()[:200])
    assert "damaged or cut short" in refusal(tmp_path / "cut.npy")
    (tmp_path / "cut-images-idx3-ubyte").write_bytes(idx(GREY)[:100])
    assert "numbers where its header says" in refusal(tmp_path / "cut-images-idx3-ubyte")
    (tmp_path / "empty").mkdir()
    assert "holds no pictures" in refusal(tmp_path / "empty")
    # Negative control: the same pictures without a fault.
    assert len(read(saved(tmp_path / "good", GREY))) == 24


def test_alpha_depth_and_colour_are_made_alike_and_said(tmp_path):
    clear = np.concatenate([COLOUR, np.full((24, 5, 6, 1), 255, np.uint8)], axis=3)
    assert np.array_equal(read(saved(tmp_path / "opaque", clear)).points, COLOUR)
    clear[0, ..., 3] = 0
    found = read(saved(tmp_path / "alpha", clear))
    assert np.all(found.points[0] == 255) and np.array_equal(found.points[1:], COLOUR[1:])
    assert "1 of 24 pictures are see-through" in found.remarks[0]
    deep = RNG.integers(0, 65536, (24, 5, 6), dtype=np.uint16)
    found = read(saved(tmp_path / "deep", deep))
    assert np.array_equal(found.points[..., 0], deep) and found.schema.to_dict()["levels"] == 65536
    both = saved(tmp_path / "both", GREY[:10])
    saved(both, COLOUR[10:], "c{:02d}.png")
    found = read(both)
    assert found.space == Real((5, 6, 3)) and "10 of 24 pictures are grey" in found.remarks[0]
    assert np.array_equal(found.points[0], np.repeat(GREY[0, ..., None], 3, axis=2))
    mixed = saved(tmp_path / "depths", GREY[:12])
    saved(mixed, deep[:12], "d{:02d}.png")
    assert "save all alike" in refusal(mixed)


def test_copies_of_a_picture_stay_in_one_part(tmp_path):
    np.save(tmp_path / "a.npy", np.concatenate([COLOUR, COLOUR[:20], COLOUR]))
    found = read(tmp_path / "a.npy")
    assert "44 of 68 rows are exact copies" in found.remarks[0]
    prepared = ready(found, 1)
    assert not {x.tobytes() for x in prepared.train} & {x.tobytes() for x in prepared.test}


def test_without_pillow_a_folder_is_refused_and_arrays_are_read(tmp_path, monkeypatch):
    folder, file = saved(tmp_path / "folder", GREY), tmp_path / "a.npy"
    np.save(file, GREY)
    original = builtins.__import__

    def without(name, *rest, **more):
        if name.split(".")[0] == "PIL":
            raise ImportError(name)
        return original(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    assert 'pip install "unnorm[imaging]"' in refusal(folder)
    assert len(read(file)) == 24


def test_a_sheet_is_a_png_that_can_be_read():
    schema = PictureSchema((5, 6, 3), 0.0, 255.0, 256)
    page = sheet(COLOUR, schema)
    again = np.asarray(Image.open(io.BytesIO(png_of(page))))
    assert np.array_equal(again, page)
    # Every pixel of a picture is a square of the sheet, which makes it at least 24 pixels wide and high.
    factor = 5
    assert np.array_equal(page[: 5 * factor : factor, : 6 * factor : factor], COLOUR[0])
    assert min(5, 6) * factor >= 24
    grey = png_of(sheet(GREY[..., None], PictureSchema((5, 6, 1), 0.0, 255.0, 256)))
    assert Image.open(io.BytesIO(grey)).mode == "L"


def test_copies_among_draws_are_seen():
    train, new, draws = (
        RNG.normal(size=(200, 3, 3, 1)),
        RNG.normal(size=(100, 3, 3, 1)),
        RNG.normal(size=(100, 3, 3, 1)),
    )
    far = neighbours(draws, train, 2)
    by_hand = np.sqrt(((draws[0] - train) ** 2).mean(axis=(1, 2, 3)))
    assert far.numbers[0].tolist() == np.argsort(by_hand)[:2].tolist()
    np.testing.assert_allclose(far.distances[0], np.sort(by_hand)[:2])
    rows = neighbours(new, train, 1).distances[:, 0]
    assert "no sign of copies" in _verdict(far.distances[:, 0], rows)
    draws[:20] = train[:20]
    planted = neighbours(draws, train, 1)
    assert np.all(planted.distances[:20] == 0) and "may be copies" in _verdict(planted.distances[:, 0], rows)
