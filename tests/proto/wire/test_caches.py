"""npucall.wire.caches: what is kept has a bound, and nobody pushes out what others brought."""

from npucall.wire.caches import BoundedCache


def test_the_oldest_values_of_who_has_most_give_room_and_all_others_stay() -> None:
    cache = BoundedCache[str, str](100)
    cache.keep("theirs", "a", 30, "one")
    for number in range(50):
        cache.keep(f"mine {number}", "b", 10, "another")
    assert cache.get("theirs") == "a"
    assert [number for number in range(50) if cache.get(f"mine {number}")] == [*range(43, 50)]
    assert (cache.used, len(cache)) == (100, 8)
    cache.keep("large", "c", 90, "a third")  # it has most now, so it is what goes
    assert (cache.get("large"), cache.used) == (None, 100)


def test_a_value_counts_once_and_one_that_can_never_fit_pushes_nothing_out() -> None:
    cache = BoundedCache[str, int](10)
    cache.keep("a", 1, 6, "first")
    cache.keep("a", 2, 6, "second")
    cache.keep("b", 3, 11, "second")
    assert (cache.get("a"), cache.get("b"), cache.used) == (1, None, 6)
