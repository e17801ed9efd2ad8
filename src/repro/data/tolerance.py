"""Numbers compared relative to their size, in place of math-verify's six decimal places."""

from contextlib import suppress
from decimal import Decimal
from typing import Any

from latex2sympy2_extended.logic import And
from math_verify import grader
from sympy import Basic, Derivative, Float, Integer, N, Rational, Symbol
from sympy.core.relational import Equality
from sympy.matrices import MatrixBase, MatrixExpr

DIGITS = 6  # of a decimal that stands for another number, as 0.333333 for 1/3
MOST = 14  # digits that the arithmetic of decimals leaves right
EXACT = Rational(1, 10**25)  # relative, for numbers without decimals
ZERO = Rational(1, 10**50)  # more than is left of an exact zero
by_places, by_simplifying = grader.sympy_numeric_eq, grader.sympy_symbolic_eq


def near(truth: Any, given: Any, least: int = DIGITS) -> bool:
    """Whether two numbers are equal: rational numbers exactly; where there is a decimal, to half a unit in the truth's
    sixth significant digit and, if the truth is itself an integer or a decimal, in its sixth decimal place and in the
    last of its own digits, of which an integer has fourteen at most. `least`: in place of the six."""
    decimal = truth.has(Float), given.has(Float)
    truth, given = map(exact, (truth, given))
    if isinstance(truth, Rational) and isinstance(given, Rational) and not any(decimal):
        return truth == given
    size = abs(N(truth, 30))
    if not size.is_finite:
        return truth == given
    written = Decimal(str(N(size, MOST))).normalize()
    first = written.adjusted() + 1
    difference = abs(N(truth - given, 30, maxn=100 + max(first, 0)))
    if not any(decimal) or not size:
        return bool(difference <= EXACT * min(size, 1) + ZERO)
    digits = least
    if decimal[0] or isinstance(truth, Integer):
        digits = max(len(written.as_tuple().digits), least, first + least)
    return bool(difference <= Rational(10) ** (first - (digits if decimal[0] else min(digits, MOST))) / 2)


def exact(number: Any) -> Any:
    """The number with each decimal as the fraction that it is written as, whose sums lose nothing."""
    return grader.safe_sympy_doit(number.xreplace({each: Rational(str(each)) for each in number.atoms(Float)}))


def equal(truth: Any, given: Any, *places: int) -> bool:
    """math-verify's numeric comparison: numbers by `near`, formulas by its own and, since it drops what is below 1e-15,
    by `near` at a point; matrices by entry."""
    matrices = (MatrixBase, MatrixExpr)
    if isinstance(truth, matrices) or isinstance(given, matrices):
        return by_places(truth, given, *places)
    symbols = sorted(truth.free_symbols | given.free_symbols, key=str)
    if symbols and not (by_places(truth, given, *places) or by_places(exact(truth), exact(given), *places)):
        return False
    point = {symbol: Rational(7391 + 1777 * number, 5003) for number, symbol in enumerate(symbols)}
    with suppress(TypeError, ValueError, ArithmeticError, AttributeError):  # no numbers after all
        return near(*(each.subs(point) for each in (truth, given)))
    return bool(symbols)


def same_formula(truth: Any, given: Any) -> bool:
    """math-verify's symbolic comparison, of formulas alone: of numbers it adds decimals up, and loses the smaller."""
    return not (truth.is_number and given.is_number) and by_simplifying(truth, given)


def undifferentiated(answer: Any) -> Any:
    """An answer with a symbol in place of each derivative, which math-verify takes for 0 when it solves equations."""
    if not isinstance(answer, Basic) or not answer.has(Derivative):
        return answer
    return answer.xreplace({each: Symbol(f"[{each}]") for each in answer.atoms(Derivative)})


def untrue(answer: Any, equation: bool) -> bool:
    """Whether an answer contains an equation of numbers that does not hold, as 7 = 8 does not; unless the truth is an
    `equation`, nor does one of a number and a formula, as 7 = x + 1."""
    parts = answer._unsorted_args if isinstance(answer, And) else [answer]
    equations = [each for each in parts if isinstance(each, Equality)]
    if not equation and any(each.rhs.free_symbols and not each.lhs.free_symbols for each in equations):
        return True
    numbers = [each.args for each in equations if not each.free_symbols]
    with suppress(TypeError, ValueError, ArithmeticError, AttributeError):  # sets, for instance
        return any(not near(right, left, least=0) for left, right in numbers)
    return False
