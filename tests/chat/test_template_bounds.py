"""Growth is counted before it happens: hostile templates end by counts, not by clocks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from templatekit import SMALL, Bench

from causerie.chat.filters import FILTERS, TESTS


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


_GROW = (
    "{{% set n = namespace(v={start}) %}}"
    "{{% for i in range(90) %}}{{% set n.v = {step} %}}{{% endfor %}}{end}"
)


def _grown(start: str, step: str, end: str = "") -> str:
    return _GROW.format(start=start, step=step, end=end)


HOSTILE = {
    "repeated squaring": _grown("7", "n.v * n.v"),
    "powers": _grown("7", "n.v ** n.v"),
    "power of a power": "{{ 9 ** (9 ** 9) }}",
    "adding numbers": _grown("2 ** 4000", "n.v + n.v"),
    "doubling by ~": _grown("'ab'", "n.v ~ n.v"),
    "doubling by +": _grown("'ab'", "n.v + n.v"),
    "doubling lists": _grown("[1]", "n.v + n.v"),
    "doubling tuples": _grown("(1,)", "n.v + n.v"),
    "doubling bytes": _grown("'ab'.encode()", "n.v + n.v"),
    "doubling by join": _grown("'ab'", "[n.v, n.v] | join"),
    "doubling by str.join": _grown("'ab'", "'-'.join([n.v, n.v])"),
    "doubling by replace": _grown("'ab'", "n.v.replace('a', n.v)"),
    "doubling by the filter replace": _grown("'ab'", "n.v | replace('a', n.v)"),
    "doubling by format": _grown("'ab'", "'{0}{0}'.format(n.v)"),
    "doubling by format_map": _grown("'ab'", "'{a}{a}'.format_map({'a': n.v})"),
    "doubling by %": _grown("'ab'", "'%s%s' % (n.v, n.v)"),
    "doubling by % with names": _grown("'ab'", "'%(a)s%(a)s' % {'a': n.v}"),
    "doubling by the filter format": _grown("'ab'", "'%s%s' | format(n.v, n.v)"),
    "doubling by sum": _grown("'ab'", "[n.v, n.v] | sum(start='')"),
    "doubling lists by sum": _grown("[1]", "[n.v, n.v] | sum(start=[])"),
    "doubling by set": "{% set n = namespace(v='ab') %}{% for i in range(90) %}"
    "{% set w %}{{ n.v }}{{ n.v }}{% endset %}{% set n.v = w %}{% endfor %}",
    "doubling by a macro":
    "{% macro m(v) %}{{ v }}{{ v }}{% endmacro %}" + _grown("'ab'", "m(n.v)"),
    "doubling by extend": "{% set l = [1] %}{% for i in range(90) %}"
    "{% set _ = l.extend(l) %}{% endfor %}",
    "doubling by expandtabs": _grown("'\\t'", "(n.v ~ '\\t').expandtabs(1000) ~ '\\t'"),
    "doubling by indent": _grown("'a\\n'", "n.v | indent(n.v | length, true)"),
    "doubling by xmlattr": _grown("'a'", "{'k': n.v} | xmlattr ~ n.v"),
    "doubling by escape": _grown("'<'", "n.v | e | string ~ '<'"),
    "printing what is nested": _grown("[1]", "[n.v, n.v]", "{{ n.v }}"),
    "a text of what is nested": _grown("[1]", "[n.v, n.v]", "{% set s = n.v | string %}"),
    "JSON of what is nested": _grown("[1]", "[n.v, n.v]", "{% set s = n.v | tojson %}"),
    "% of what is nested": _grown("[1]", "[n.v, n.v]", "{% set s = '%s' % [n.v] %}"),
    "format of what is nested": _grown("[1]", "[n.v, n.v]", "{% set s = '{}'.format(n.v) %}"),
    "pprint of what is nested": _grown("[1]", "[n.v, n.v]", "{% set s = n.v | pprint %}"),
    "~ of what is nested": _grown("[1]", "[n.v, n.v]", "{% set s = n.v ~ 'a' %}"),
    "comparing what is nested": _grown("[[1], [1]]", "[[n.v[0], n.v[0]], [n.v[1], n.v[1]]]",
                                       "{{ n.v[0] == n.v[1] }}"),
    "a test of what is nested": _grown("[[1], [1]]", "[[n.v[0], n.v[0]], [n.v[1], n.v[1]]]",
                                       "{{ n.v[0] is eq n.v[1] }}"),
    "sorting what is nested": _grown("[[1], [1]]", "[[n.v[0], n.v[0]], [n.v[1], n.v[1]]]",
                                     "{{ n.v | sort | length }}"),
    "what holds itself": "{% set l = [1] %}{% set _ = l.append(l) %}{{ l }}",
    "% with a width": "{{ '%2000000000d' % 1 }}",
    "% with a precision": "{{ '%.2000000000f' % 1 }}",
    "% with a width given": "{{ '%*d' % (2000000000, 1) }}",
    "format with a width": "{{ '{:2000000000d}'.format(1) }}",
    "format with a width given": "{{ '{:{w}}'.format('a', w=2000000000) }}",
    "center": "{{ 'a'.center(2000000000) }}",
    "the filter center": "{{ 'a' | center(2000000000) }}",
    "a constant": "{{ 'a' * 2000000000 }}",
    "ljust": "{{ 'a'.ljust(2000000000) }}",
    "rjust": "{{ 'a'.rjust(2000000000) }}",
    "zfill": "{{ '1'.zfill(2000000000) }}",
    "expandtabs": "{{ '\\t'.expandtabs(2000000000) }}",
    "replace with nothing between": "{{ ('a' * 10000).replace('', 'b' * 10000) }}",
    "tojson with an indent": "{{ [[1]] | tojson(indent=2000000000) }}",
    "indent": "{{ 'a\\nb' | indent(2000000000) }}",
    "slice": "{{ [1] | slice(2000000000) | list | length }}",
    "batch": "{{ [1] | batch(2000000000, 0) | list | length }}",
    "wordwrap": "{{ ('a ' * 9000) | wordwrap(1, wrapstring='b' * 9000) }}",
    "urlize": "{{ ('a.com ' * 3000) | urlize(rel='b' * 9000) }}",
    "round": "{{ 1.5 | round(2000000000) }}",
    "round a number down": "{{ 5 | round(-2000000000) }}",
    "bytes of a number": "{{ (1).to_bytes(2000000000, 'big') }}",
    "translate": "{{ ('a' * 9000).translate({97: 'b' * 9000}) }}",
    "% of bytes": "{{ 'a%0999999999d'.encode() % 1 }}",
    "sort with a key": "{% set l = [2000000000] %}{{ l.sort(key='a'.center) }}",
    "a method kept for later": "{% set f = 'a'.center %}{{ f(2000000000) }}",
    "a method by map": "{{ (['a'] | map(attribute='center') | first)(2000000000) }}",
    "a filter by map": "{{ ['a'] | map('center', 2000000000) | list }}",
    "a number out of a long text": "{{ ('9' * 9000) | int(base=16) * 2 }}"
    "{{ 'a' * (('f' * 999) | int(base=16)) }}",
    "a wide date": "{{ strftime_now('%2000000000d') }}",
    "a date of many years": "{{ strftime_now('%1000000Y') }}",
    "a long date": "{{ strftime_now('%c' * 9000) }}",
    "a list without end": "{% set l = [1] %}{% for i in l %}{% set _ = l.append(1) %}{% endfor %}",
    "loops in loops":
    "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
    "loops by recursion": "{% for a in [9999] recursive %}{% for b in range(9999) %}"
    "{{ loop(range(9999)) if false }}{% endfor %}{{ loop(range(9999)) }}{% endfor %}",
    "macros by recursion": "{% macro f(n) %}{{ f(n - 1) if n }}{{ f(n - 1) if n }}{% endmacro %}"
    "{{ f(60) }}",
    "a macro without end": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "maps of maps": "{{ range(9999) | map('string') | map('list') | sum(start=[]) | length }}",
    "a list of characters":
    "{% for i in range(99) %}{% set l = ('a' * 20000) | list %}{% endfor %}",
    "pieces of a text": "{% for i in range(99) %}{% set l = ('a ' * 9000).split() %}{% endfor %}",
    "lines of a text":
    "{% for i in range(99) %}{% set l = ('\\n' * 9000).splitlines() %}{% endfor %}",
    "copies of a text":
    "{% set t = 'a' * 20000 %}{% for i in range(99) %}{% set l = t[:] %}{% endfor %}",
    "a dictionary that grows": "{% set d = {} %}{% for i in range(9999) %}"
    "{% set _ = d.update({i: i}) %}{% endfor %}",
    "many small prints": "{% for i in range(9999) %}abcdefghij{% endfor %}",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_what_widens_is_refused_before_it_is_made(bench: Bench, name: str) -> None:
    """The process would not survive any of it: it has half a gigabyte."""
    done = bench.render(HOSTILE[name], limits=SMALL)
    assert done.kind != "text"
    assert "seconds" not in done.words
    assert done.turns <= SMALL["turns"] + 1


@pytest.mark.parametrize("name", [name for name in HOSTILE if "2000000000" in HOSTILE[name]])
def test_the_usual_limits_are_enough_too(bench: Bench, name: str) -> None:
    """Admitted output is small, and refusals are not a matter of memory."""
    done = bench.render(HOSTILE[name])
    assert "memory" not in done.words
    assert len(done.words) < 3_000_000


_names = st.sampled_from(["a", "b", "x", "big", "n.v"])
_base = st.one_of(
    _names,
    st.sampled_from(
        ["'ab'", "'<|x|>'", "7", "2000000000", "1.5", "[1, 'a']", "{'k': 'v'}", "(1,)"]
    ),
    st.sampled_from(["'%s%9999999d'", "'{:9999999}'", "'\\t\\n '", "true", "none", "-3"]),
)
_METHODS = [
    "center",
    "count",
    "encode",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "index",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "partition",
    "replace",
    "rjust",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "title",
    "upper",
    "zfill",
    "append",
    "copy",
    "extend",
    "insert",
    "pop",
    "get",
    "items",
    "keys",
    "update",
    "values",
    "to_bytes",
    "translate",
    "isalpha",
]
_OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "<", "in", "and", "or"]


def _wider(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    arguments = st.lists(inner, max_size=3).map(", ".join)
    return st.one_of(
        st.tuples(inner, st.sampled_from(_OPERATORS), inner).map(" ".join).map("({})".format),
        st.builds("({}).{}({})".format, inner, st.sampled_from(_METHODS), arguments),
        st.builds("(({}) | {}({}))".format, inner, st.sampled_from(sorted(FILTERS)), arguments),
        st.builds("(({}) | {})".format, inner, st.sampled_from(sorted(FILTERS))),
        st.builds("(({}) is {})".format, inner, st.sampled_from([t for t in TESTS if t.isalpha()])),
        st.builds("[{0}, {0}, {1}]".format, inner, inner),
        st.builds("({0})[{1}:]".format, inner, inner),
        st.builds("m({0})".format, inner),
        st.builds("dict(k={0}, l={0})".format, inner),
        st.builds("strftime_now({0})".format, inner),
    )


_expressions = st.recursive(_base, _wider, max_leaves=6)


def _statement(expression: str, kind: int) -> str:
    return (
        "{{% set a = {e} %}}",
        "{{{{ {e} }}}}",
        "{{% for i in range(40) %}}{{% set n.v = {e} %}}{{% endfor %}}",
        "{{% for b in {e} %}}{{{{ b }}}}{{% set n.v = [n.v, b] %}}{{% endfor %}}",
        "{{% set b %}}{{{{ {e} }}}}{{{{ a }}}}{{% endset %}}",
    )[kind].format(e=expression)


_statements = st.builds(_statement, _expressions, st.integers(0, 4))


@given(statements=st.lists(_statements, min_size=1, max_size=5), word=st.text(max_size=20))
@settings(max_examples=150, deadline=None)
def test_any_template_ends_within_its_budget(
    bench: Bench, statements: list[str], word: str
) -> None:
    source = (
        "{% set n = namespace(v='ab') %}{% set a, b = 'a', [1, 2] %}"
        "{% macro m(v) %}{{ v }}{{ v }}{% endmacro %}" + "".join(statements)
    )
    word = word.encode(errors="ignore").decode()
    done = bench.render(source, limits=SMALL, kwargs={"x": word, "big": 10**12})
    assert "seconds" not in done.words
    assert done.turns <= SMALL["turns"] + 1
    if done.kind == "text":
        assert len(done.words) <= SMALL["characters"]
        assert done.made <= SMALL["made"]
