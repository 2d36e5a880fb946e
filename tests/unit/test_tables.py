"""Reading tables: what is good comes through unchanged, what is bad gets one sentence that names the place."""

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from unnorm.data import read_table
from unnorm.errors import InputError

VALUES = np.random.default_rng(0).normal(size=(30, 3))


def text(values: np.ndarray = VALUES, header: str | None = "a,b,c", delimiter: str = ",") -> str:
    lines = [] if header is None else [header]
    return "\n".join([*lines, *(delimiter.join(repr(float(v)) for v in row) for row in values)]) + "\n"


def with_line(number: int, line: str) -> str:
    """A good table with one line (counted from 1, the header being line 1) replaced."""
    lines = text().splitlines()
    lines[number - 1] = line
    return "\n".join(lines) + "\n"


def npy(array: np.ndarray, allow_pickle: bool = False) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=allow_pickle)
    return buffer.getvalue()


def npz(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def arrow(**columns: object) -> bytes:
    return arrow_table(pa.table(columns))


def arrow_table(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    parquet.write_table(table, buffer)
    return buffer.getvalue()


def refused(path: Path, **options: bool) -> str:
    """The sentence with which a path is refused."""
    with pytest.raises(InputError) as caught:
        read_table(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert not message.endswith(".")
    return message


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str | bytes], Path]:
    def make(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return make


# ------------------------------------------------------------------------------------------------ good tables


@pytest.mark.parametrize(
    "name, content, columns",
    (
        ("t.csv", text(), ("a", "b", "c")),
        ("t.CSV", text(), ("a", "b", "c")),
        ("t.csv", text(header=None), ("x1", "x2", "x3")),
        ("t.csv", text(header="a;b;c", delimiter=";"), ("a", "b", "c")),
        ("t.csv", text(header="a\tb\tc", delimiter="\t"), ("a", "b", "c")),
        ("t.tsv", text(header="a\tb\tc", delimiter="\t"), ("a", "b", "c")),
        ("t.csv", text(header="a, b, c", delimiter=", "), ("a", "b", "c")),
        ("t.csv", text(header='"a, in m";"b";"c"', delimiter=";"), ("a, in m", "b", "c")),
        ("t.csv", text(header="a (kg; dry),b,c"), ("a (kg; dry)", "b", "c")),
        ("t.csv", text(header="# a,b,c"), ("a", "b", "c")),
        ("t.csv", text(header=",b,c"), ("x1", "b", "c")),
        ("t.csv", text(header="0,1,2"), ("0", "1", "2")),
        ("t.csv", "\ufeff" + text(), ("a", "b", "c")),
        ("t.csv", text().replace("\n", "\r\n"), ("a", "b", "c")),
        ("t.csv", text().replace("\n", "\n\n") + "  \n", ("a", "b", "c")),
        ("t.csv", text().rstrip("\n"), ("a", "b", "c")),
        ("t.npy", npy(VALUES), ("x1", "x2", "x3")),
        ("t.npy", npy(np.asfortranarray(VALUES)), ("x1", "x2", "x3")),
        ("t.npy", npy(VALUES.astype(">f8")), ("x1", "x2", "x3")),
        ("t.npz", npz(anything=VALUES), ("x1", "x2", "x3")),
        ("t.npz", npz(labels=np.zeros(3), X=VALUES), ("x1", "x2", "x3")),
        ("t.npz", npz(test=np.zeros((2, 2)), train=VALUES), ("x1", "x2", "x3")),
        ("t.parquet", arrow(a=VALUES[:, 0], b=VALUES[:, 1], c=VALUES[:, 2]), ("a", "b", "c")),
    ),
)
def test_a_good_table_comes_through_unchanged(write, name: str, content: str | bytes, columns: tuple[str, ...]):
    path = write(name, content)
    table = read_table(path)
    np.testing.assert_array_equal(table.values, VALUES)
    assert table.values.dtype == np.float64
    assert table.columns == columns
    assert table.source == str(path)


def test_a_first_row_of_whole_numbers_is_data(write):
    whole = np.array([[0, 1, 2], *([[1, 1, 0], [0, 0, 1]] * 15)])
    content = "\n".join(",".join(map(str, row)) for row in whole)
    np.testing.assert_array_equal(read_table(write("t.csv", content)).values, whole)


@pytest.mark.parametrize("kind", (np.int8, np.uint16, np.int64, np.float16, np.float32, bool))
def test_whole_and_short_and_true_or_false_columns_become_numbers(write, kind: type):
    array = (np.arange(60).reshape(30, 2) % 7 > 2).astype(kind)
    np.testing.assert_array_equal(read_table(write("t.npy", npy(array))).values, array.astype(float))
    columns = pa.table({"a": pa.array(array[:, 0]), "b": pa.array(array[:, 1])})
    np.testing.assert_array_equal(read_table(write("t.parquet", arrow_table(columns))).values, array.astype(float))


def test_one_column_is_a_table(write):
    one = VALUES[:, :1]
    np.testing.assert_array_equal(read_table(write("t.npy", npy(one.ravel()))).values, one)
    np.testing.assert_array_equal(read_table(write("t.csv", text(one, "a"))).values, one)
    np.testing.assert_array_equal(read_table(write("t.csv", text(one, None))).values, one)


def test_a_table_to_score_may_be_short_and_constant(write):
    path = write("t.csv", "a,b\n1.5,2\n")
    np.testing.assert_array_equal(read_table(path, to_fit=False).values, [[1.5, 2.0]])
    assert "1 row," in refused(path)
    assert "no rows" in refused(write("t.csv", "a,b\n"), to_fit=False)


# ------------------------------------------------------------------------------------------------ bad text


@pytest.mark.parametrize(
    "content, words",
    (
        ("", ("empty",)),
        (" \n\n", ("empty",)),
        ('""\n', ("empty",)),
        ("a,b,c\n", ("header but no rows",)),
        (with_line(7, "1.0,2.0"), ("line 7", "2 fields", "line 1 has 3")),
        (with_line(9, "1.0,2.0,3.0,4.0"), ("line 9", "4 fields")),
        (with_line(5, "1.0"), ("line 5", "1 field,")),
        (with_line(4, "1.0,Paris,2.0"), ("column 'b'", "'Paris'", "line 4", "encode")),
        ("\n\n" + with_line(4, "1.0,Paris,2.0"), ("column 'b'", "line 6")),
        (with_line(4, "x,Paris,2.0"), ("column 'a'", "'x'", "also text: 'b'")),
        (with_line(6, f"1.0,{'long' * 50},2.0"), ("column 'b'", "longl...'")),
        (with_line(6, "1.0,1_000,2.0"), ("column 'b'", "'1_000'")),
        (text(header=None).replace("\n", ",a\n"), ("column 'x4'", "'a'", "line 1")),
        (text(header="a,2019,2020"), ("'a'", "line 1", "header")),
        ("a;b\n" + "1,5;2,5\n" * 30, ("column 'a'", "'1,5'", "line 2", "point")),
        ("1,5;2,5\n" * 30, ("column 'x1'", "'1,5'", "point")),
        (with_line(4, "1.0,,2.0"), ("1 in 'b'", "line 4", "drop those rows or fill them in")),
        (with_line(4, "NA,?,2.0"), ("1 in 'a', 1 in 'b'", "line 4")),
        (with_line(5, "nan,2.0,N/A"), ("1 in 'a', 1 in 'c'", "line 5")),
        (text() + ",,\n,,\n", ("2 in 'a', 2 in 'b', 2 in 'c'", "line 32")),
        (with_line(8, "1.0,2.0,inf"), ("column 'c'", "infinite", "line 8")),
        (with_line(8, "1.0,-1e999,1.0"), ("column 'b'", "infinite", "line 8")),
        (text(header="a,b,a"), ("columns 1 and 3", "'a'", "rename")),
        (text(VALUES[:1]), ("1 row,", "at least 20")),
        (text(VALUES[:19]), ("19 rows,", "at least 20")),
        (text(VALUES * [1, 0, 1] + [0, 3, 0]), ("constant", "'b' (always 3)")),
        (",a\n" + "".join(f"{i},{i * 1.5}\n" for i in range(30)), ("first column", "counts the rows")),
        (text().encode() + b"\xff\xfe,1,2\n", ("UTF-8", "0xff", "line 32")),
        (text().encode("utf-16"), ("UTF-8", "line 1")),
        (with_line(3, '1.0,"2.0,3.0'), ("line 3 of", "2 fields")),
        ("a,b\n" + "1" * 200_000 + ",2\n", ("line 2", "fields")),
        (b"1,2\n" + b"\x00" * 100, ("UTF-8", "zero byte in line 2")),
    ),
)
def test_a_bad_text_table_gets_one_sentence(write, content: str | bytes, words: tuple[str, ...]):
    path = write("t.csv", content)
    message = refused(path)
    assert all(word in message for word in (str(path), *words)), message


# ------------------------------------------------------------------------------------------------ bad arrays


def holed(value: float) -> np.ndarray:
    array = VALUES.copy()
    array[4, 1] = value
    return array


@pytest.mark.parametrize(
    "name, content, words",
    (
        ("t.npy", b"", ("empty",)),
        ("t.npy", b"not an array", ("damaged",)),
        ("t.npy", npy(VALUES)[:-100], ("damaged or cut short",)),
        ("t.npy", npy(VALUES)[:20], ("damaged or cut short",)),
        ("t.npy", npy(np.array([[1, "a"]] * 30, dtype=object), allow_pickle=True), ("Python objects",)),
        ("t.npy", npy(VALUES[None]), ("3 dimensions", "(1, 30, 3)")),
        ("t.npy", npy(np.float64(1)), ("0 dimensions",)),
        ("t.npy", npy(VALUES + 1j), ("complex128",)),
        ("t.npy", npy(np.array([["a", "b"]] * 30)), ("<U1",)),
        ("t.npy", npy(np.zeros(30, dtype="M8[s]")), ("datetime64",)),
        ("t.npy", npy(np.zeros(30, dtype=[("a", float), ("b", int)])), ("'a', 'b'",)),
        ("t.npy", npy(np.zeros((0, 3))), ("no rows",)),
        ("t.npy", npy(np.zeros(0)), ("no rows",)),
        ("t.npy", npy(np.zeros((3, 0))), ("no columns",)),
        ("t.npy", npy(holed(np.nan)), ("1 in 'x2'", "row 5")),
        ("t.npy", npy(holed(-np.inf)), ("column 'x2'", "row 5")),
        ("t.npy", npy(np.zeros((30, 9))), ("'x1' (always 0)", "and 4 more")),
        ("t.npy", npy(VALUES[:5]), ("5 rows",)),
        ("t.npz", b"", ("empty",)),
        ("t.npz", npz(x=VALUES)[:-50], ("not a whole .npz",)),
        ("t.npz", npy(VALUES), ("not a whole .npz",)),
        ("t.npz", npz(), ("no array",)),
        ("t.npz", npz(first=VALUES, second=VALUES), ("'first', 'second'", "x, X, data or train")),
        ("t.npz", npz(x=VALUES[None]), ("'x'", "3 dimensions")),
        ("t.npz", npz(x=np.array([None])), ("Python objects",)),
        ("t.npz", npz(x=holed(np.nan)), ("1 in 'x2'", "row 5")),
        ("t.parquet", b"", ("empty",)),
        ("t.parquet", b"PAR1 but not really", ("damaged",)),
        ("t.parquet", arrow(a=VALUES[:, 0])[:-30], ("damaged",)),
        ("t.parquet", arrow(a=VALUES[:, 0], city=[None] + ["Paris"] * 29), ("'city'", "'Paris'", "row 2")),
        ("t.parquet", arrow(a=[1.0, None, 3.0] * 10, b=VALUES[:, 0]), ("10 in 'a'", "row 2")),
        ("t.parquet", arrow(a=[None] * 30), ("30 in 'a'",)),
        ("t.parquet", arrow(a=holed(np.inf)[:, 1]), ("column 'a'", "row 5")),
        ("t.parquet", arrow(a=[1.5] * 30), ("'a' (always 1.5)",)),
        ("t.parquet", arrow_table(pa.table([VALUES[:, 0]] * 2, names=["a", "a"])), ("columns 1 and 2", "'a'")),
        ("t.parquet", arrow_table(pa.table({})), ("no columns",)),
        ("t.parquet", arrow(a=pa.array([], pa.float64())), ("no rows",)),
    ),
)
def test_a_bad_array_gets_one_sentence(write, name: str, content: bytes, words: tuple[str, ...]):
    path = write(name, content)
    message = refused(path)
    assert all(word in message for word in (str(path), *words)), message


class Trap:
    """Unpickling this would leave a file behind."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("name", ("t.npy", "t.npz"))
def test_nothing_is_ever_unpickled(write, tmp_path: Path, name: str):
    sprung = tmp_path / "sprung"
    trap = np.array([Trap(sprung)], dtype=object)
    assert "Python objects" in refused(write(name, npy(trap, True) if name == "t.npy" else npz(x=trap)))
    assert not sprung.exists()


@pytest.mark.parametrize("name", ("t.csv", "t.npy", "t.npz", "t.parquet"))
def test_damaged_bytes_give_a_table_or_a_sentence_and_nothing_else(write, name: str):
    good = {
        "t.csv": text().encode(),
        "t.npy": npy(VALUES),
        "t.npz": npz(x=VALUES),
        "t.parquet": arrow(a=VALUES[:, 0], b=VALUES[:, 1]),
    }[name]
    generator = np.random.default_rng(5)
    for _ in range(150):
        damaged = bytearray(good)
        for _ in range(generator.integers(1, 6)):
            damaged[generator.integers(min(len(good), 400))] = generator.integers(256)
            damaged[-generator.integers(1, min(len(good), 400))] = generator.integers(256)
        path = write(name, bytes(damaged[: generator.integers(1, len(good) + 1)] if _ % 3 == 0 else damaged))
        try:
            assert np.isfinite(read_table(path).values).all()
        except InputError as error:
            assert "\n" not in str(error)


# ------------------------------------------------------------------------------------------------ bad paths


def test_a_missing_file_a_folder_and_an_unknown_ending_are_named(write, tmp_path: Path):
    assert "there is no file" in refused(tmp_path / "absent.csv")
    assert "is a folder" in refused(tmp_path)
    assert "'.xlsx'" in refused(write("t.xlsx", "1"))
    assert "no ending" in refused(write("table", "1"))
    assert "cannot be read" in refused(tmp_path / ("long" * 200 + ".csv"))
    assert "there is no file" in refused(write("t.csv", text()) / "inside.csv")
    assert "there is no file" in refused(Path("nul\0.csv"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.csv")
    assert "not a regular file" in refused(tmp_path / "pipe.csv")


@pytest.mark.parametrize(
    "name, content",
    (("t.csv", text()), ("t.npy", npy(VALUES)), ("t.npz", npz(x=VALUES)), ("t.parquet", arrow(a=VALUES[:, 0]))),
)
def test_a_file_that_may_not_be_read_is_named(write, monkeypatch, name: str, content: str | bytes):
    path = write(name, content)

    def forbidden(*_args: object, **_options: object):
        # The superuser may read everything, so taking the permission away would prove nothing there.
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("io.open", forbidden)
    monkeypatch.setattr("builtins.open", forbidden)
    message = refused(path)
    assert str(path) in message and "permission denied" in message


def test_without_pyarrow_the_sentence_says_how_to_install_it(write, monkeypatch):
    path = write("t.parquet", arrow(a=VALUES[:, 0]))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert 'pip install "unnorm[tables]"' in refused(path)
