# SPDX-License-Identifier: Apache-2.0
"""A call made again: its arguments in, a launch out, with nothing looked at twice.

An engine makes one call for every layer, and those of a step differ in addresses alone. So a call that went well leaves a recipe:
the problem, and where each pointer of the tensors comes from. The next call whose tensors have the same layouts, and whose other
arguments are equal, takes the addresses and launches. The length of the longest request, which grows with every step, may differ
where it is a hint. Every other call takes the long way, which says what is wrong, allocates workspaces and makes contexts current;
so does one whose launch fails.
"""

from __future__ import annotations

import functools
import inspect
import struct
import sys
from collections.abc import Callable
from ctypes import addressof, c_int32, c_void_p
from operator import itemgetter
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from libdecode import abi, driver
from libdecode.call import Call, Launch
from libdecode.context import Context, default_context
from libdecode.library import library
from libdecode.workspace import Workspace, pool

_MOST_RECIPES = 8  # of a function: layers of a few kinds, steps of a few sizes
_PLAIN = (type(None), bool, int, float, str)  # arguments that are compared
# Those that are a tensor's of the caller: workspaces are found anew, slopes stay where they are.
_POINTERS = [name for name, kind in abi.Tensors._fields_ if kind is c_void_p and name not in ("workspace", "alibi_slopes")]
_HINTS = ("max_seq_len", "max_sequence_kv")  # parameters whose argument is the problem's max_seq_len
_MOST_TOKENS = 2**31 - 1  # that it has room for
_MISSED = object()  # the recipe is not for this call

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def remembered(body: Callable[Concatenate[Call, Parameters], Result]) -> Callable[Parameters, Result]:
    """`body` without its first parameter, which is a new Call that it describes and runs."""
    recipes: tuple[Recipe, ...] = ()  # the newest first; replaced, not changed, since threads read it
    signature = inspect.signature(body)
    parameters = list(signature.parameters.values())[1:]
    hint = next((position for position, parameter in enumerate(parameters) if parameter.name in _HINTS), None)

    @functools.wraps(body)
    def function(*args: Any, **kwargs: Any) -> Any:
        nonlocal recipes
        names, values = tuple(kwargs), (*args, *kwargs.values())
        types = tuple(map(type, values))
        for recipe in recipes:
            if recipe.types == types and recipe.names == names:
                result = recipe.launch(values)
                if result is not _MISSED:
                    return result
        call = Call()
        result = body(call, *args, **kwargs)
        made = _recipe(call, names, types, values, result, _given(hint, parameters, names, len(args)))
        if made is not None:
            recipes = (made, *recipes[: _MOST_RECIPES - 1])
        return result

    function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return function


def _given(parameter: int | None, parameters: list[inspect.Parameter], names: tuple[str, ...], num_unnamed: int) -> int | None:
    """Where the argument of a parameter stands; None: it was not given."""
    if parameter is None or parameter < num_unnamed:
        return parameter
    name = parameters[parameter].name
    return num_unnamed + names.index(name) if name in names else None


class Arguments(NamedTuple):
    """Those of a call, and which of them are what. What lies in pairs, (K, V), stands behind them all."""

    names: tuple[str, ...]  # of those that were given by name
    types: tuple[type, ...]
    values: tuple[Any, ...]
    pairs: list[int]  # positions
    inner_types: list[list[type]]
    tensors: list[int]  # of those that were looked at
    plain: list[int]  # of those that must be equal
    hint: int | None  # of the longest request's length, where it need not be
    get_result: Callable[[tuple[Any, ...]], Any]  # of the values, and what was made behind them: what the call returns


class Origin(NamedTuple):
    """Of a pointer."""

    tensor: int  # number among those that were looked at, and what was made behind them
    offset: int  # bytes from its first


class Recipe:
    """Of a call with PyTorch's tensors on a GPU. Everything here is found once, so that `launch` has little to do."""

    def __init__(self, call: Call, launch: Launch, arguments: Arguments, positions: dict[str, Origin]):
        torch, values, quick = sys.modules["torch"], arguments.values, driver.torch_quick()
        self.names, self.types = arguments.names, arguments.types
        self._pairs, self._inner_types = arguments.pairs, arguments.inner_types
        self._get_tensors, self._get_plain = _many(arguments.tensors), _many(arguments.plain)
        self._plain = self._get_plain(values)
        seen = self._get_tensors(values)
        self._address = torch.Tensor.data_ptr
        self._are_alike, self._current_ordinal = quick.check_of(list(seen)), quick.current_ordinal
        self._current_stream, self._is_capturing = quick.stream, quick.is_capturing
        self._allocators = list(map(quick.allocator_of, call.made))
        self._ordinal, self._stream = launch.ordinal, launch.stream
        self._workspace, self._context = (_position(values, given) for given in (launch.workspace, launch.context))
        self._default_context = default_context().handle if launch.context is None else None
        self._problem, self._length_at = call.problem, arguments.hint
        self._length = call.problem.max_seq_len
        self._longest = c_int32.from_buffer(call.problem, abi.Problem.max_seq_len.offset)  # it is checked here, so at less cost
        self._problem_address = addressof(call.problem)
        self._decode = library().decode_packed
        # The bytes of the tensors: addresses among bytes that stay.
        self._offsets = [origin for origin in positions.values() if origin.offset != 0]
        count = len(seen) + len(call.made)
        sources: dict[str, int] = {"workspace": count + len(self._offsets), "workspace_bytes": count + len(self._offsets) + 1}
        for name, origin in positions.items():
            sources[name] = origin.tensor if origin.offset == 0 else count + self._offsets.index(origin)
        self._constants: list[bytes] = []
        image, form, order, done = bytes(call.tensors), "=", [], 0
        for name, _ in (*abi.Tensors._fields_, ("", None)):
            field = getattr(abi.Tensors, name) if name else None
            if field is not None and name not in sources:
                continue
            start = len(image) if field is None else field.offset
            if start > done:
                form += f"{start - done}s"
                order.append(count + len(self._offsets) + 2 + len(self._constants))
                self._constants.append(image[done:start])
            if field is not None:
                form += "Q"
                order.append(sources[name])
                done = start + field.size
        self._in_order, self._pack = itemgetter(*order), struct.Struct(form).pack
        self._get_result: Callable[[tuple[Any, ...]], Any] = arguments.get_result

    def launch(self, values: tuple[Any, ...]) -> Any:
        """What the call returns, or _MISSED. `values` have the types of this recipe."""
        if self._pairs:
            inner = [values[at] for at in self._pairs]
            if [list(map(type, pair)) for pair in inner] != self._inner_types:
                return _MISSED
            for pair in inner:
                values += tuple(pair)
        tensors = self._get_tensors(values)
        if self._get_plain(values) != self._plain or not self._are_alike(*tensors):
            return _MISSED
        if self._length_at is not None and values[self._length_at] != self._length:
            length = values[self._length_at]
            if not 0 < length <= _MOST_TOKENS:
                return _MISSED
            self._longest.value = self._length = length  # one thread may launch with another's: it is a hint
        addresses = list(map(self._address, tensors))
        if 0 in addresses or self._current_ordinal() != self._ordinal:
            return _MISSED
        stream = self._current_stream(self._ordinal) if self._stream is None else self._stream
        if self._workspace is not None:
            workspace = values[self._workspace]
        else:
            is_capturing = self._is_capturing() if self._stream is None else driver.is_capturing(stream)
            workspace = pool.find(self._ordinal, stream, is_capturing)
            if workspace is None:
                return _MISSED
        for allocate in self._allocators:
            made = allocate()
            addresses.append(made.data_ptr())
            values += (made,)
        for at, offset in self._offsets:
            addresses.append(addresses[at] + offset)
        context = self._default_context if self._context is None else values[self._context].handle
        packed = self._pack(*self._in_order((*addresses, workspace.address, workspace.size_bytes, *self._constants)))
        if self._decode(context, self._problem_address, packed, stream) != 0:
            return _MISSED
        return self._get_result(values)


def _recipe(call: Call, names: tuple[str, ...], types: tuple[type, ...], values: tuple[Any, ...], result: Any,
            length_at: int | None) -> Recipe | None:
    """None where it was no launch, or where something but layouts and equal arguments may have had a part in it."""
    torch = sys.modules.get("torch")
    if call.launch is None or torch is None:
        return None
    pairs = [position for position, kind in enumerate(types) if kind is tuple or kind is list]
    inner_types = [list(map(type, values[position])) for position in pairs]
    values += tuple(element for position in pairs for element in values[position])
    kinds = list(map(type, values))
    at = {id(value): position for position, value in enumerate(values) if type(value) is torch.Tensor}
    if len(at) != kinds.count(torch.Tensor) or not all(_is_on_gpu(values[position]) for position in at.values()):
        return None  # one tensor in two places, or elements that the host may have read
    if any(kind not in (*_PLAIN, torch.Tensor, torch.dtype, Workspace, Context, tuple, list) for kind in kinds):
        return None
    if any(getattr(call.tensors, name) and name not in call.pointers for name in _POINTERS):
        return None
    if any(seen.address == 0 for seen in call.pointers.values()):
        return None  # without elements: what stands in for its address is another tensor's
    made = {id(value): number for number, value in enumerate(call.made)}
    if any(id(seen.owner) not in at and id(seen.owner) not in made for seen in call.views):
        return None
    tensors = sorted({at[id(seen.owner)] for seen in call.views if id(seen.owner) in at})
    number = {id(values[position]): index for index, position in enumerate(tensors)}
    number |= {owner: len(tensors) + index for owner, index in made.items()}
    positions = {name: Origin(number[id(seen.owner)], seen.address - seen.owner.data_ptr()) for name, seen in call.pointers.items()}
    hint = length_at if call.length_is_hint and length_at is not None and kinds[length_at] is int else None
    plain = [position for position, kind in enumerate(kinds) if position != hint and (kind in _PLAIN or kind is torch.dtype)]
    everything = (*values, *call.made)
    returned = [_position(everything, one) for one in (result if type(result) is tuple else (result,))]
    if None in returned:
        return None
    get_result = _many([one for one in returned if one is not None]) if type(result) is tuple else itemgetter(returned[0])
    arguments = Arguments(names, types, values, pairs, inner_types, tensors, plain, hint, get_result)
    return Recipe(call, call.launch, arguments, positions)


def _many(positions: list[int]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """itemgetter, whose result is a tuple however many there are."""
    if len(positions) > 1:
        return itemgetter(*positions)
    return lambda values: tuple(values[at] for at in positions)


def _position(values: tuple[Any, ...], wanted: Any) -> int | None:
    """Where this very object stands."""
    return next((at for at, value in enumerate(values) if value is wanted), None) if wanted is not None else None


def _is_on_gpu(tensor: Any) -> bool:
    return bool(tensor.device.type == "cuda")
