"""The pictures of the video pipeline: scenes are functions of a number, the codec is lossless, the marquee moves."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fries_nb.workloads.video import LINES, Marquee, Scene, bounced, decode, encode, is_key, lettering

SIZES = st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(3))
PAIRS = SIZES.flatmap(lambda size: st.tuples(arrays(np.uint8, size), arrays(np.uint8, size)))


@given(pair=PAIRS, level=st.integers(1, 9))
def test_packets_are_decoded_to_the_same_pictures(pair, level):
    """Key and delta packets, at every level; no argument is changed."""
    before, after = pair
    kept = before.copy(), after.copy()
    key, delta = encode(after, level=level), encode(after, before, level)
    assert (is_key(key), is_key(delta)) == (True, False)
    assert (decode(key) == after).all()
    assert (decode(delta, before) == after).all()
    assert all((now == then).all() for now, then in zip(pair, kept, strict=True))


def test_a_key_packet_needs_no_picture_and_does_not_use_it():
    """It may have another size."""
    pixels = Scene(1, 16, 24).frame(0)
    assert (decode(encode(pixels), np.zeros((5, 5, 3), np.uint8)) == pixels).all()


SMALL, OTHER = Scene(1, 16, 16).frame(0), Scene(1, 16, 18).frame(0)


@pytest.mark.parametrize(
    ("coding", "said"),
    [
        (lambda: decode(encode(SMALL, SMALL)), "got a delta packet without the picture before it"),
        (lambda: decode(encode(SMALL, SMALL), OTHER), "got a picture of 16 x 16 after one of 18 x 16"),
        (lambda: encode(SMALL, OTHER), "got a picture of 16 x 16 after one of 18 x 16"),
        (lambda: decode(b""), "got b''...; expected a packet"),
        (lambda: decode(b"RIFF1234"), "got b'RIFF1234'...; expected a packet"),
        (lambda: decode(encode(SMALL)[:-9]), r"a packet of \d+ bytes is damaged"),
        (lambda: decode(encode(SMALL)[:5] + encode(OTHER)[5:]), "a packet has 864 bytes of picture; expected 16 x 16"),
    ],
)
def test_what_cannot_be_coded_is_refused(coding, said):
    """Missing and other pictures, packets that are none or damaged."""
    with pytest.raises(ValueError, match=said):
        coding()


@given(way=st.floats(-1e6, 1e6), limit=st.floats(1, 1e4))
def test_shapes_stay_inside(way, limit):
    """They turn back at both borders, however far they have gone."""
    assert 0 <= bounced(way, limit) <= limit


@pytest.mark.parametrize(("height", "width"), [(16, 16), (24, 100), (120, 160)])
def test_a_scene_is_a_function_of_its_number(height, width):
    """A frame can be made without those before it, is not shared, and moves; other seeds show other scenes."""
    scene = Scene(3, height, width)
    frames = [scene.frame(number) for number in range(30)]
    frames[5][:] = 0
    assert (Scene(3, height, width).frame(29) == frames[29]).all()
    assert scene.frame(5).any()
    moved = [(one != other).any() for one, other in pairwise(frames[6:])]
    assert sum(moved) > len(moved) // 2  # in a small picture not each time by a whole pixel
    assert (scene.frame(29) != Scene(4, height, width).frame(29)).any()


def bright(marquee: Marquee, number: int, width: int = 60) -> np.ndarray:
    """Where the text is, in a black picture of this number."""
    pixels = np.zeros((40, width, 3), np.uint8)
    marquee.draw(pixels, number)
    return pixels.any(axis=2)


def test_a_marquee_enters_at_the_right_and_leaves_at_the_left():
    """It moves by its speed, and begins again once it has left."""
    marquee = Marquee("I", scale=1, speed=1)
    length = lettering("I", 1).shape[1] + 60
    assert not bright(marquee, 0).any()
    assert np.flatnonzero(bright(marquee, 3).any(axis=0)).tolist() == [58, 59]
    for number in range(10, 55):
        assert (bright(marquee, number)[:, 1:] == bright(marquee, number + 1)[:, :-1]).all()
    assert not bright(marquee, length - 1)[:, 1:].any()
    assert (bright(marquee, 20) == bright(marquee, 20 + length)).all()


def test_the_picture_above_the_marquee_is_left_alone():
    """Its band is darkened, and the rest is not."""
    pixels = np.full((40, 60, 3), 100, np.uint8)
    Marquee("", scale=2).draw(pixels, 7)
    high = (LINES + 2) * 2
    assert (pixels[:-high] == 100).all()
    assert (pixels[-high:] == 50).all()


def test_letters_differ_and_others_become_question_marks():
    """Lower-case letters are capitals."""
    assert (lettering("a", 1) == lettering("A", 1)).all()
    assert (lettering("\N{SNOWMAN}", 1) == lettering("?", 1)).all()
    assert lettering("AB", 3).shape == (3 * LINES, 3 * 2 * 6)
