"""Secrets by the name of their key, and as parts of URLs."""

import pytest

from autoscaler.redaction import Redaction, is_secret, masked, plain


@pytest.mark.parametrize(
    "key",
    [
        "password",
        "api_key",
        "apiKey",
        "bearer_token",
        "client_secret",
        "Authorization",
        "headers",
        "private_key",
        "cookie",
        "passwd",
    ],
)
def test_keys_that_name_secrets(key):
    assert is_secret(key)


@pytest.mark.parametrize(
    "key",
    [
        "bearer_token_file",
        "password_file",
        "secret_name",
        "prompt_tokens",
        "max_tokens",
        "url",
        "keys",
        "name",
    ],
)
def test_keys_that_do_not(key):
    assert not is_secret(key)


def test_masking_goes_all_the_way_down_and_leaves_the_rest():
    content = {
        "url": "https://me:pw@host:9090/path?token=abc#x",
        "headers": {"X-Tenant": "t1"},
        "list": [{"password": "x", "n": 1, "on": True}],
        "token": None,
        "password_file": "/run/secret",
    }
    assert masked(content) == {
        "url": "https://***@host:9090/path?***#x",
        "headers": {"X-Tenant": "***"},
        "list": [{"password": "***", "n": 1, "on": True}],
        "token": None,
        "password_file": "/run/secret",
    }


def test_texts_lose_secrets_as_written_and_as_python_shows_them():
    redaction = Redaction(
        {
            "a": {"password": "it's\nlong"},
            "url": "http://u:pass-in-url@h",
            "headers": {"k": "value"},
        }
    )
    assert redaction.text("x it's\nlong y") == "x *** y"
    assert redaction.text(repr("x it's\nlong y")) == '"x *** y"'
    assert redaction.text("pass-in-url and value") == "*** and ***"
    assert redaction.value({"value": ["a value", 5, None]}) == {"value": ["a ***", 5, None]}


def test_a_secret_that_contains_another_is_taken_out_whole():
    redaction = Redaction({"password": "hunter", "token": "hunter2hunter"})
    assert redaction.text("hunter2hunter") == "***"


def test_very_short_secrets_do_not_make_texts_unreadable():
    assert Redaction({"password": "a"}).text("a cat") == "a cat"


def test_several_configurations_are_one_redaction():
    both = Redaction({"password": "first-one"}).also({"token": "second-one"})
    assert both.text("first-one, second-one, third") == "***, ***, third"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("red \x1b[31m and gone \x1b[2K\r", "red \\x1b[31m and gone \\x1b[2K\\r"),
        ("csi \x9b2J, nul \0, bell \a", "csi \\x9b2J, nul \\x00, bell \\x07"),
        ("right to left \u202e, next line \x85", "right to left \\u202e, next line \\x85"),
        ("two\nlines\tand ümläuts 日本", "two\nlines\tand ümläuts 日本"),
    ],
)
def test_control_characters_are_shown_and_not_obeyed_S14(text, shown):
    assert plain(text) == shown
