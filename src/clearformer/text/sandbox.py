"""Where a stranger's chat template runs: Jinja's sandbox, without files, and with a price on everything.

Every value that a template makes, compares or writes costs its size, and every step a little, out of a purse that is
the same for all. One that loops without end or builds a huge text runs out of it, and that is an error. What cannot be
priced is not there: a few filters, methods that pad, formatting.
"""

import json
import re
import threading
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import wraps
from types import BuiltinMethodType, MethodType
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

PURSE = 2**26  # one a character,
ELEMENT = 2**5  # for each of a list or an object, and
STEP = 2**7  # for every step
LONGEST_NUMBER = 2**10  # bits
METHODS: dict[type, str] = {  # what may be called of a value: nothing whose result is larger than what goes in
    str: """strip lstrip rstrip split rsplit splitlines partition rpartition removeprefix removesuffix replace join
        startswith endswith find rfind index rindex count lower upper title capitalize swapcase casefold
        isalnum isalpha isdigit isnumeric isspace isupper islower""",
    dict: "get items keys values copy",
    list: "index count copy",
    tuple: "index count",
    LoopContext: "cycle changed",
}
FILTERS = """abs capitalize dictsort e escape float groupby int list lower max min safe sort string title trim
    unique upper wordcount"""
LOOKS = """count d default first items last length map reject rejectattr reverse select selectattr"""  # cost one step
COMPARES = "!= < <= == > >= eq equalto ge greaterthan gt in le lessthan lt ne"  # the tests that read values


class RefusalError(Exception):
    """What a template says by `raise_exception`."""


class PurseError(Exception):
    """The purse is empty."""


class Purse(threading.local):
    """Of every thread its own: a template that is run for several at once costs each what it costs alone."""

    def __init__(self) -> None:
        self.left = PURSE

    def pay(self, amount: int) -> None:
        self.left -= amount + STEP
        if self.left < 0:
            raise PurseError

    def pay_for(self, *values: Any) -> None:
        """The size of values with all that is in them; parts that are shared count each time, as in printing."""
        open_ = list(values)
        self.pay(0)
        while open_:
            value = open_.pop()
            if isinstance(value, str):
                self.pay(len(value))
            elif isinstance(value, int):
                if value.bit_length() > LONGEST_NUMBER:
                    raise PurseError
            elif isinstance(value, dict):
                self.pay(2 * len(value) * ELEMENT)
                open_ += [*value.keys(), *value.values()]
            elif isinstance(value, list | tuple):
                self.pay(len(value) * ELEMENT)
                open_ += value


class _Names(Namespace):
    """Jinja's `namespace`, printed without what is in it: that may hold itself."""

    def __repr__(self) -> str:
        return "<namespace>"


class _Generation(Extension):
    """`{% generation %}` marks what the model says; it is a plain block here."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True)).set_lineno(line)


class Priced(NodeTransformer):
    """Puts payment where Jinja offers no other place for it."""

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Node:  # noqa: N802
        return nodes.Const(node.data).set_lineno(node.lineno)  # so that it passes `finalize`

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.iter = _priced(node.iter, "paid elements")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _priced(nodes.List(node.nodes).set_lineno(node.lineno), "paid text")

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.expr = _priced(node.expr, "paid")
        for operand in node.ops:
            operand.expr = _priced(operand.expr, "paid")
        return node

    def _literal(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        return _priced(node, "paid") if getattr(node, "ctx", "load") == "load" else node

    visit_List = visit_Tuple = visit_Dict = _literal  # noqa: N815

    def _refused(self, node: nodes.Node) -> nodes.Node:
        raise SecurityError("it asks for another template")

    visit_Include = visit_Import = visit_FromImport = visit_Extends = _refused  # noqa: N815


def _priced(node: Any, name: str) -> nodes.Filter:
    made = nodes.Filter(node, name, [], [], None, None)
    made.set_lineno(node.lineno)
    return made


class Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self, purse: Purse) -> None:
        self.purse = purse
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # what is computed while compiling is not paid for
            extensions=[_Generation, loopcontrols],
            finalize=jinja2.pass_context(lambda context, value: self._paid(value)),
            cache_size=0,
        )
        self.globals = {"raise_exception": _refuse, "strftime_now": _now, "namespace": _Names, "dict": _dict}
        self.globals["range"] = lambda *bounds: self._paid(jinja2.sandbox.safe_range(*bounds))
        given: dict[str, Any] = self.filters
        self.filters = {name: self._wrapped(given[name]) for name in FILTERS.split()}
        self.filters |= {name: self._wrapped(given[name], looks=True) for name in LOOKS.split()}
        own: dict[str, Any] = {"tojson": self._json, "join": self._join, "replace": self._replace}
        own |= {"indent": self._indent, "round": self._round, "paid": self._paid, "paid elements": self._elements}
        own["paid text"] = lambda values: self._join([str(self._paid(value)) for value in values])
        self.filters |= own
        tests: dict[str, Any] = self.tests
        self.tests = {name: self._wrapped(test, looks=name not in COMPARES.split()) for name, test in tests.items()}

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        self.purse.pay_for(left, right)
        if operator == "%" and isinstance(left, str):
            raise SecurityError("it formats text by %")
        if operator == "**" and not abs(right) <= 64:
            raise SecurityError("it computes with huge powers")
        if operator == "*" and isinstance(left, int) != isinstance(right, int):
            times, value = (left, right) if isinstance(left, int) else (right, left)
            for _ in range(times if isinstance(value, list | tuple | str) else 0):
                self.purse.pay_for(value)
        return self._paid(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        self = __self  # named as in the library: a template may pass an argument called self
        self.purse.pay(0)
        if isinstance(__obj, BuiltinMethodType | MethodType):
            owner, name = __obj.__self__, __obj.__name__
            if name not in METHODS.get(type(owner), "").split():
                raise SecurityError(f"it calls .{name}() of a {type(owner).__name__}")
            if isinstance(owner, str):
                self.purse.pay_for(owner, args)
                if name in ("replace", "join"):
                    return self._replace(owner, *args) if name == "replace" else self._join(args[0], owner)
        elif isinstance(__obj, LoopContext):
            args = tuple(map(self._elements, args))
        elif not isinstance(__obj, Macro | jinja2.Undefined) and __obj not in self.globals.values():
            raise SecurityError(f"it calls a {type(__obj).__name__}")
        return self._paid(super().call(__context, __obj, *args, **kwargs))

    def _paid(self, value: Any) -> Any:
        self.purse.pay_for(list(value) if isinstance(value, range) else value)
        return value

    def _elements(self, values: Iterable[Any]) -> list[Any]:
        found = []
        for value in values:
            self.purse.pay(0)
            found.append(value)
        return found

    def _wrapped(self, function: Callable[..., Any], *, looks: bool = False) -> Callable[..., Any]:
        @wraps(function)  # with the marks by which Jinja knows what to pass
        def paying(*args: Any, **kwargs: Any) -> Any:
            self.purse.pay_for(*(() if looks else (args, kwargs)))
            found = function(*args, **kwargs)
            return found if looks else self._paid(found)

        return paying

    def _join(self, values: Iterable[Any], between: Any = "", attribute: Any = None) -> str:
        found, between = self._elements(values), str(self._paid(between))
        if attribute is not None:
            found = [self.getitem(value, attribute) for value in found]
        self.purse.pay_for(found)
        self.purse.pay(len(found) * len(between))
        return between.join(map(str, found))

    def _replace(self, text: Any, old: Any, new: Any, count: int | None = None) -> str:
        text, old, new = (str(self._paid(value)) for value in (text, old, new))
        self.purse.pay(text.count(old) * len(new))
        return text.replace(old, new, -1 if count is None else count)

    def _indent(self, text: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
        text = str(self._paid(text))
        self.purse.pay((len(text.splitlines()) + 1) * (len(width) if isinstance(width, str) else width))
        return jinja2.filters.do_indent(text, width, first, blank)

    def _round(self, value: float, precision: int = 0, method: Any = "common") -> float:
        if abs(precision) > 20:
            raise SecurityError("it rounds to more places than numbers have")
        return jinja2.filters.do_round(value, precision, method)

    def _json(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: Any = None,
        separators: Any = None,
        sort_keys: bool = False,
    ) -> str:
        if indent is not None and not (isinstance(indent, int) and 0 <= indent <= 16):
            raise SecurityError("it indents JSON by more than 16 spaces")
        if separators is not None and max(map(len, separators)) > 16:
            raise SecurityError("it separates JSON by long texts")
        for _ in range(indent or 1):
            self.purse.pay_for(value)
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: Any) -> None:
    raise RefusalError(str(message))


def _now(form: str) -> str:
    if not re.fullmatch(r"([^%]|%-?[a-zA-Z%]){,100}", form):
        raise SecurityError("it asks for the date in a form that is too long")
    return datetime.now().strftime(form)


def _dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)
