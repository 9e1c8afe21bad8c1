"""Archives of ``.pt`` files record by record."""

from __future__ import annotations

import io
import zipfile

import pytest

import flambeau as fb


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "saved.pt")
    fb.save({"a": fb.arange(6.0), "b": fb.ones(2, dtype=fb.int16)}, path)
    return path


def test_records_are_read_by_name(path):
    reader = fb.PyTorchFileReader(path)

    assert {"data.pkl", "data/0", "data/1", "version"} <= set(reader.get_all_records())
    assert reader.has_record("data/0")
    assert not reader.has_record("data/2")
    assert reader.get_record("version") == b"3\n"
    assert reader.get_record_size("data/0") == 24
    with open(path, "rb") as file:
        assert file.read()[reader.get_record_offset("data/0") :][:24] == reader.get_record("data/0")


def test_records_become_storages(path):
    found = fb.PyTorchFileReader(path).get_storage_from_record("data/0", 6, fb.float32)

    assert found.untyped_storage().nbytes() == 24
    assert found.set_(found.untyped_storage(), 0, (6,)).tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(RuntimeError, match="24 bytes"):
        fb.PyTorchFileReader(path).get_storage_from_record("data/0", 7, fb.float32)


def test_what_is_not_there_is_a_runtime_error(path, tmp_path):
    with pytest.raises(RuntimeError, match="no record saved/nothing"):
        fb.PyTorchFileReader(path).get_record("nothing")
    with pytest.raises(RuntimeError, match="open file failed"):
        fb.PyTorchFileReader(str(tmp_path / "absent"))
    with pytest.raises(RuntimeError, match="zip archive"):
        fb.PyTorchFileReader(io.BytesIO(b"abc"))


def test_what_is_written_is_read_by_pytorch(oracle, tmp_path):
    path = str(tmp_path / "written.pt")
    writer = fb.PyTorchFileWriter(path)
    writer.write_record("x", b"abcdef", 3)
    writer.write_record("data/0", "text", 4)
    written = writer.get_all_written_records()
    with pytest.raises(RuntimeError, match="already"):
        writer.write_record("x", b"", 0)
    writer.write_end_of_file()
    theirs = oracle._C.PyTorchFileReader(path)

    assert written == {"x", "data/0"}
    assert writer.archive_name() == "written"
    assert theirs.get_record("x") == b"abc"
    assert theirs.get_record("data/0") == b"text"
    assert theirs.serialization_id() == writer.serialization_id() == fb.PyTorchFileReader(path).serialization_id()
    assert zipfile.ZipFile(path).testzip() is None


def test_archives_are_written_to_files_in_memory():
    file = io.BytesIO()
    writer = fb.PyTorchFileWriter(file)
    writer.write_record("x", b"abc", 3)
    writer.write_end_of_file()
    file.seek(0)

    assert fb.PyTorchFileReader(file).get_record("x") == b"abc"
