"""Never two writers: kills and freezes at random, judged by the server's log of writes."""

from .rounds import Game


def test_in_twenty_rounds_of_kills_and_freezes_only_the_holder_writes_A17(tmp_path):
    game = Game(tmp_path, seed=5)
    try:
        game.play(20)
        assert game.problems == []
        assert len(game.cluster.writes()) > 20  # there was something to go wrong
        assert set(game.ends) <= {14, 1}  # frozen ones end, by the kernel or by themselves
    finally:
        game.close()
