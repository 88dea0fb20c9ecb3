"""Secrets by the name of their key, and as parts of URLs."""

import pytest

from autoscaler.redaction import Redaction, is_secret, masked


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
