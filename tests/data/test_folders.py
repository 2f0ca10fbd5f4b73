import errno
import os

import numpy as np
import pytest
import torch
from PIL import Image

from data import makers
from facade.data import decoded, folders
from facade.data.errors import DataError
from facade.data.load import load


def loaded(root, **fields):
    return folders.folder(makers.data(root, "folder", **({"path": "mine", "size": 8} | fields)))


def cache(root):
    return sorted(path.suffix for path in (root / decoded.CACHE).glob("*")) if (root / decoded.CACHE).exists() else []


def test_train_and_val_folders_are_read(tmp_path):
    makers.write_splits(tmp_path / "mine")
    dataset = loaded(tmp_path)
    assert dataset.classes == ["cat", "dog"]
    assert dataset.train.x.shape == dataset.test.x.shape == (12, 3, 8, 8)
    assert dataset.train.x.dtype == torch.uint8
    assert dataset.train.y.tolist() == [0] * 6 + [1] * 6
    assert dataset.mean == dataset.std == [0.5] * 3


def test_one_folder_of_classes_is_cut_by_the_fraction_of_every_class(tmp_path):
    makers.write_classes(tmp_path / "mine", images=10)
    (tmp_path / "mine" / "LICENCE").write_text("beside the classes")
    first, again = loaded(tmp_path, test_fraction=0.3), loaded(tmp_path, test_fraction=0.3)
    assert torch.bincount(first.test.y).tolist() == [3, 3]
    assert torch.bincount(first.train.y).tolist() == [7, 7]
    assert torch.equal(first.test.x, again.test.x)


def test_the_shorter_side_is_scaled_and_the_centre_cut_out(tmp_path):
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 10:20] = 200
    for split in ("train", "test"):
        makers.save(tmp_path / "mine" / split / "a" / "wide.png", Image.fromarray(wide))
        makers.save(tmp_path / "mine" / split / "a" / "tall.png", Image.fromarray(wide.transpose(1, 0, 2)))
    assert loaded(tmp_path, size=10).train.x.unique().tolist() == [200]
    assert loaded(tmp_path, size=5).train.x.shape == (2, 3, 5, 5)


def test_images_of_the_right_size_keep_their_pixels(tmp_path):
    makers.write_splits(tmp_path / "mine", size=(8, 8))
    expected = np.asarray(makers.picture(0, (8, 8))).transpose(2, 0, 1)
    assert np.array_equal(loaded(tmp_path).train.x[0].numpy(), expected)


def test_a_second_load_comes_from_the_cache(tmp_path, monkeypatch):
    makers.write_splits(tmp_path / "mine")
    first = loaded(tmp_path)
    assert cache(tmp_path) == [".json", ".npy"]
    monkeypatch.setattr(decoded, "_fill", lambda *_: pytest.fail("decoded again"))
    second = loaded(tmp_path)
    assert torch.equal(first.train.x, second.train.x)
    assert torch.equal(first.test.x, second.test.x)


def test_changing_loaded_images_never_changes_the_cache(tmp_path):
    makers.write_splits(tmp_path / "mine")
    plain = loaded(tmp_path).train.x.clone()
    load(makers.data(tmp_path, "folder", path="mine", size=8, skew="rotate"), seed=1)
    loaded(tmp_path).train.x.zero_()
    assert torch.equal(loaded(tmp_path).train.x, plain)


@pytest.mark.parametrize("change", ["content", "new file", "settings"])
def test_a_changed_folder_or_setting_is_decoded_again(tmp_path, change):
    makers.write_splits(tmp_path / "mine")
    before = loaded(tmp_path)
    path = tmp_path / "mine" / "train" / "cat" / "0.png"
    if change == "content":
        makers.save(path, makers.picture(999, (9, 9)))
        after = loaded(tmp_path)
        assert not torch.equal(after.train.x[0], before.train.x[0])
    elif change == "new file":
        makers.save(path.with_name("more.png"), makers.picture(5))
        assert len(loaded(tmp_path).train) == len(before.train) + 1
    else:
        assert loaded(tmp_path, channels=1).train.x.shape[1] == 1
    assert cache(tmp_path) == [".json", ".json", ".npy", ".npy"]


def test_a_damaged_cache_is_made_again(tmp_path):
    makers.write_splits(tmp_path / "mine")
    first = loaded(tmp_path).train.x.clone()
    (path,) = (tmp_path / decoded.CACHE).glob("*.npy")
    path.write_bytes(path.read_bytes()[:200])
    assert torch.equal(loaded(tmp_path).train.x, first)


def test_a_place_that_cannot_be_written_is_no_obstacle(tmp_path):
    makers.write_splits(tmp_path / "mine")
    expected = loaded(tmp_path).train.x.clone()
    for path in (tmp_path / decoded.CACHE).glob("*"):
        path.unlink()
    (tmp_path / decoded.CACHE).rmdir()
    (tmp_path / decoded.CACHE).write_text("a file where the folder should be")
    with pytest.warns(
        UserWarning,
        match=r"are not kept: .*\.facade-cache cannot be written to \(.+\); every load",
    ):
        assert torch.equal(loaded(tmp_path).train.x, expected)


def test_gray_images_stay_gray_only_if_all_are(tmp_path):
    makers.write_splits(tmp_path / "mine", mode="L")
    alike = loaded(tmp_path)
    assert alike.train.x.shape[1] == 1
    assert alike.mean == [0.5]
    makers.save(tmp_path / "mine" / "val" / "cat" / "colour.png", makers.picture(1))
    mixed = loaded(tmp_path)
    assert mixed.train.x.shape[1] == 3
    assert torch.equal(mixed.train.x[:, 0], mixed.train.x[:, 1])
    assert mixed.notes == ["24 of 25 images are gray: they were turned into RGB"]
    assert loaded(tmp_path).notes == mixed.notes  # also from the cache


def test_channels_can_be_asked_for(tmp_path):
    makers.write_splits(tmp_path / "mine")
    gray = loaded(tmp_path, channels=1)
    assert gray.train.x.shape[1] == 1
    assert gray.notes == ["24 of 24 images are in colour: they were turned into gray"]
    assert loaded(tmp_path, channels=3).train.x.shape[1] == 3


@pytest.mark.parametrize("name", ["clear.png", "clear.gif"])
def test_transparent_images_are_laid_on_white(tmp_path, name):
    makers.write_splits(tmp_path / "mine")
    clear = Image.new("RGBA", (8, 8), (255, 0, 0, 0))
    makers.save(tmp_path / "mine" / "train" / "cat" / name, clear)
    dataset = loaded(tmp_path)
    assert dataset.train.x[6].unique().tolist() == [255]
    assert dataset.notes == ["1 of 25 images are transparent: they were laid on white"]


def test_deep_images_among_others_are_refused_rather_than_clipped(tmp_path):
    makers.write_splits(tmp_path / "mine")
    deep = Image.fromarray(np.full((8, 8), 40_000, np.uint16))
    makers.save(tmp_path / "mine" / "train" / "cat" / "deep.png", deep)
    with pytest.raises(DataError, match=r"cat/0.png is not like the other images \(mode RGB\)"):
        loaded(tmp_path)


@pytest.mark.parametrize("kind", ["png", "tif"])
def test_images_of_16_bits_keep_them(tmp_path, kind):
    values = np.random.default_rng(1).integers(0, 65536, (2, 6, 9, 9), np.uint16)
    for c, name in enumerate(("cat", "dog")):
        for i in range(6):
            makers.save(tmp_path / "mine" / name / f"{i}.{kind}", Image.fromarray(values[c, i]))
    for _ in range(2):  # the second time from the cache
        dataset = loaded(tmp_path, size=9)
        assert dataset.train.x.dtype == torch.float32
        assert (dataset.scale, dataset.mean, dataset.std) == ("bits", [32767.5], [32767.5])
        held = {x.tobytes() for x in torch.cat([dataset.train.x, dataset.test.x]).numpy().astype(np.uint16)}
        assert held == {x.tobytes() for x in values.reshape(-1, 9, 9)}
    assert loaded(tmp_path, size=4).train.x.shape[1:] == (1, 4, 4)
    with pytest.raises(DataError, match="more than 8 bits per value and is gray"):
        loaded(tmp_path, channels=3)


@pytest.mark.parametrize("kind", ["png", "tif"])
def test_of_16_bits_per_colour_8_are_read_and_that_is_said(tmp_path, kind):
    values = np.random.default_rng(1).integers(0, 65536, (8, 8, 3), np.uint16)
    for name in ("cat", "dog"):
        for i in range(3):
            makers.save(tmp_path / "mine" / name / f"{i}.png", makers.picture(i))
    makers.write_deep_colours(tmp_path / "mine" / "cat" / f"0.{kind}", values)
    for _ in range(2):  # the second time from the cache
        dataset = loaded(tmp_path, size=8)
        assert dataset.notes[0] == (
            "1 of N images have 16 bits per colour, of which 8 were read; arrays in an .npz file keep all"
        ).replace("N", "6" if kind == "png" else "7")
        held = {x.tobytes() for x in torch.cat([dataset.train.x, dataset.test.x]).numpy()}
        assert (values >> 8).astype(np.uint8).transpose(2, 0, 1).tobytes() in held


def test_images_of_floats_stay_as_they_are(tmp_path):
    for name in ("cat", "dog"):
        for i in range(3):
            makers.save(tmp_path / "mine" / name / f"{i}.tif", Image.fromarray(np.full((8, 8), i / 7, np.float32)))
    dataset = loaded(tmp_path, size=8)
    assert dataset.scale == "none"
    assert set(dataset.train.x.unique().tolist()) <= {float(np.float32(i / 7)) for i in range(3)}


def test_files_that_are_no_images_are_passed_over_and_named(tmp_path):
    makers.write_splits(tmp_path / "mine")
    plain = loaded(tmp_path)
    for place in (
        "train/dog/readme.txt",
        "train/dog/Thumbs.db",
        "train/cat/.DS_Store",
        "val/licence",
        "val/cat/._0.png",
    ):
        (tmp_path / "mine" / place).write_text("not an image")
    dataset = loaded(tmp_path)
    assert dataset.train.x.equal(plain.train.x)
    assert dataset.notes == [
        "cat/.DS_Store, dog/Thumbs.db, dog/readme.txt: no images, not used",
        "cat/._0.png, licence: no images, not used",
    ]


def test_images_that_are_cut_short_are_named_and_nothing_is_left(tmp_path):
    makers.write_splits(tmp_path / "mine")
    path = tmp_path / "mine" / "train" / "dog" / "3.png"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match=r"dog/3.png cannot be decoded"):
        loaded(tmp_path)
    assert cache(tmp_path) == []


def test_hidden_files_are_left_alone(tmp_path):
    makers.write_splits(tmp_path / "mine")
    for place in ("", "train", "train/cat"):
        (tmp_path / "mine" / place / ".DS_Store").write_text("the system's")
    assert len(loaded(tmp_path).train) == 12


def test_a_link_to_nowhere_is_named(tmp_path):
    makers.write_splits(tmp_path / "mine")
    (tmp_path / "mine" / "train" / "cat" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    with pytest.raises(DataError, match=r"cat/gone.png cannot be read \(No such file or directory\); fetch it or"):
        loaded(tmp_path)


def test_a_link_that_leads_back_to_itself_is_named(tmp_path):
    makers.write_splits(tmp_path / "mine")
    loop = tmp_path / "mine" / "train" / "cat" / "loop"
    loop.symlink_to(loop)
    with pytest.raises(DataError, match=r"cat/loop cannot be read \(Too many levels of symbolic links\); "):
        loaded(tmp_path)


@pytest.mark.parametrize("splits", [["Training", "Testing"], ["mine/train", "mine/val"]])
def test_folders_named_like_parts_of_the_data_are_no_classes(tmp_path, splits):
    makers.write_splits(tmp_path / "mine", splits=splits)
    with pytest.raises(DataError, match=r"stands where a class is expected but is named like a part of the data"):
        loaded(tmp_path)


def test_folders_beside_training_and_test_are_said_to_be_unused(tmp_path):
    makers.write_splits(tmp_path / "mine", splits=["train", "test", "valid"])
    assert loaded(tmp_path).notes == ["the images in valid are not used: test is the test set"]


def test_photographs_are_turned_as_their_camera_noted(tmp_path):
    upright = makers.picture(3, (8, 8))
    lying, noted = upright.transpose(Image.Transpose.ROTATE_90), Image.Exif()
    noted[0x0112] = 6  # to be shown turned by 90 degrees clockwise
    for split in ("train", "test"):
        makers.save(tmp_path / "mine" / split / "a" / "0.png", upright)
        (tmp_path / "mine" / split / "b").mkdir()
        lying.save(tmp_path / "mine" / split / "b" / "0.png", exif=noted)
    x = loaded(tmp_path).train.x
    assert torch.equal(x[0], x[1])


def test_names_that_are_not_unicode_are_read(tmp_path):
    makers.write_splits(tmp_path / "mine")
    os.rename(tmp_path / "mine/train/cat/0.png", os.fsencode(tmp_path / "mine/train/cat") + b"/caf\xe9.png")
    assert len(loaded(tmp_path).train) == 12


def test_a_disk_without_room_for_the_cache_is_no_obstacle(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    makers.write_splits(tmp_path / "mine")
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.warns(UserWarning, match=r"not kept: .*cannot be written to \(No space left on device\); every"):
        assert len(loaded(tmp_path).train) == 12
    assert cache(tmp_path) == []


def test_a_class_in_train_but_not_in_val_is_refused(tmp_path):
    makers.write_splits(tmp_path / "mine")
    makers.save(tmp_path / "mine" / "train" / "eel" / "0.png", makers.picture(1))
    with pytest.raises(DataError, match=r"class 'eel' is in .*train but not in .*val"):
        loaded(tmp_path)


def test_an_empty_class_folder_is_refused(tmp_path):
    makers.write_splits(tmp_path / "mine")
    for split in ("train", "val"):
        (tmp_path / "mine" / split / "eel").mkdir()
    with pytest.raises(DataError, match=r"class folder .*eel is empty"):
        loaded(tmp_path)


def test_an_image_beside_the_class_folders_is_refused(tmp_path):
    makers.write_splits(tmp_path / "mine")
    makers.save(tmp_path / "mine" / "train" / "lost.png", makers.picture(1))
    with pytest.raises(DataError, match=r"train/lost.png is not in a class folder"):
        loaded(tmp_path)


def test_train_without_a_test_folder_is_refused(tmp_path):
    makers.write_splits(tmp_path / "mine", splits=["train"])
    with pytest.raises(DataError, match="neither test nor val"):
        loaded(tmp_path)


def test_a_class_with_a_single_image_cannot_be_cut(tmp_path):
    makers.write_classes(tmp_path / "mine", images=1)
    with pytest.raises(DataError, match="holds too few images"):
        loaded(tmp_path)


def test_missing_folders_and_paths_are_explained(tmp_path):
    with pytest.raises(DataError, match=r"mine is not a folder; put your class folders there"):
        loaded(tmp_path)
    with pytest.raises(DataError, match=r"needs data.path"):
        loaded(tmp_path, path="")
    (tmp_path / "mine").mkdir()
    with pytest.raises(DataError, match="has no class folders"):
        loaded(tmp_path)


def test_with_three_splits_test_is_the_test_set_and_that_is_said(tmp_path):
    makers.write_splits(tmp_path / "mine", splits=["train", "val", "test"])
    makers.save(tmp_path / "mine" / "test" / "cat" / "more.png", makers.picture(1))
    dataset = loaded(tmp_path)
    assert len(dataset.test) == 13
    assert dataset.notes == ["the images in val are not used: test is the test set"]


def test_quarter_turns_of_folders_work_because_images_are_square(tmp_path):
    makers.write_splits(tmp_path / "mine")
    federation = load(makers.data(tmp_path, "folder", path="mine", size=8, skew="rotate", clusters="1:1:1:1"), seed=1)
    assert torch.equal(federation.tests[1].x, torch.rot90(federation.tests[0].x, 1, (-2, -1)))


def test_imagenette_has_its_names_and_normalisation(tmp_path):
    for split in ("train", "val"):
        makers.write_classes(tmp_path / "imagenette2-160" / split, folders.IMAGENETTE, images=2)
    dataset = folders.imagenette(makers.data(tmp_path, "imagenette"))
    assert dataset.classes[:2] == ["tench", "English springer"]
    assert dataset.classes[-1] == "parachute"
    assert dataset.train.x.shape == (20, 3, 64, 64)
    assert dataset.mean == [0.485, 0.456, 0.406]
    assert dataset.std == [0.229, 0.224, 0.225]


def test_imagenette_is_always_in_colour(tmp_path):
    for split in ("train", "val"):
        makers.write_classes(tmp_path / "imagenette2-320" / split, folders.IMAGENETTE, images=1, mode="L")
    dataset = folders.imagenette(makers.data(tmp_path, "imagenette", channels=1))
    assert dataset.train.x.shape == (10, 3, 64, 64)


def test_imagenette_is_recognised_by_its_folders(tmp_path):
    with pytest.raises(DataError) as refused:
        folders.imagenette(makers.data(tmp_path, "imagenette"))
    assert f"facade data get imagenette --root {tmp_path}" in str(refused.value)
    assert os.path.join(tmp_path, "imagenette2-160", "train") in str(refused.value)
    makers.write_splits(tmp_path / "imagenette2")
    with pytest.raises(DataError, match="Imagenette's folders are n01440764"):
        folders.imagenette(makers.data(tmp_path, "imagenette"))


def test_flickr_mammals_has_41_folders_cut_80_to_20(tmp_path):
    with pytest.raises(DataError, match=r"put its 41 class folders into .*flickr-mammals"):
        folders.flickr_mammals(makers.data(tmp_path, "flickr-mammals"))
    names = [f"mammal-{i:02}" for i in range(41)]
    makers.write_classes(tmp_path / "flickr-mammals", names[:40], images=5, size=(4, 4))
    with pytest.raises(DataError, match="holds 40 class folders but Flickr-Mammals has 41"):
        folders.flickr_mammals(makers.data(tmp_path, "flickr-mammals"))
    makers.write_classes(tmp_path / "flickr-mammals", names[40:], images=5, size=(4, 4))
    dataset = folders.flickr_mammals(makers.data(tmp_path, "flickr-mammals"))
    assert torch.bincount(dataset.train.y).tolist() == [4] * 41
    assert torch.bincount(dataset.test.y).tolist() == [1] * 41
    assert dataset.train.x.shape[1:] == (3, 64, 64)
    assert dataset.mean == dataset.std == [0.5] * 3
