"""The eleven tools of ``travel``: what each shows or sells, takes, returns and how long it is."""

from __future__ import annotations

from typing import Any

from agentlab.base.schemas import object_schema
from agentlab.base.values import Document
from agentlab.tools.tool import Effect, Tool

FEE = 12
"""What the agency asks for a booking, on top of the price."""

SHOWS = {
    "search_flights": ("flights",),
    "search_trains": ("trains",),
    "ask_agency": ("flights", "trains"),
    "search_hotels": ("hotels",),
    "hotel_directory": ("hotels",),
}
"""Which offers a read shows."""

BOOKS = {
    "book_flight": ("flights",),
    "book_train": ("trains",),
    "agency_book": ("flights", "trains"),
    "book_hotel": ("hotels",),
    "call_hotel": ("hotels",),
}
"""Which offers a booking tool sells."""

FREE = {"flights": "seats", "trains": "seats", "hotels": "rooms"}
"""What an offer has less of when it is booked."""

MOST_NIGHTS = 30
"""For which a hotel can be booked at once."""

_ROUTE = ("origin", "destination", "day", "price", "seats")
_FIELDS = {"flights": _ROUTE, "trains": _ROUTE, "hotels": ("city", "stars", "price", "rooms")}

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_PLACES = {"id", "code", "offer", "origin", "destination", "city"}


def _record(*names: str) -> dict[str, Any]:
    return object_schema(**{name: _TEXT if name in _PLACES else _COUNT for name in names})


def _found(*kinds: str) -> dict[str, Any]:
    lists = {kind: {"type": "array", "items": _record("id", *_FIELDS[kind])} for kind in kinds}
    return object_schema(**lists)


_RIDE = _record(*_ROUTE[:3])
_CITY = _record("city")
_NIGHTS = {"type": "integer", "minimum": 1, "maximum": MOST_NIGHTS}
_STAY = object_schema(hotel_id=_TEXT, nights=_NIGHTS)
_RECEIPT = _record("code", "offer", "paid", "spent", "budget")
_PAID = {"type": "object", "required": ["code", "kind", "offer", "number", "paid"]}
_STATEMENT = object_schema(bookings={"type": "array", "items": _PAID}, spent=_COUNT, budget=_COUNT)


def _tool(
    name: str, seconds: float, parameters: Document, returns: Document, description: str
) -> Tool:
    """Make a tool; what takes long is done over the phone, and there is one phone."""
    sells = name in BOOKS
    return Tool(
        name,
        description,
        parameters,
        returns,
        effect=Effect.IRREVERSIBLE if sells else Effect.READ,
        seconds=seconds,
        holds=("phone",) if seconds > 5 else (),
        seen=(next(iter(parameters["properties"])),) if sells else (),
        timeout=max(10.0, 3 * seconds),
    )


_FLIGHT, _TRAIN, _OFFER = (
    object_schema(**{f"{n}_id": _TEXT}) for n in ("flight", "train", "offer")
)
_BOTH = _found("flights", "trains")
_SEATS, _ROOMS = "of a day that have free seats", "of a city that have free rooms, price per night"
_ONE_MORE = "each call buys one more, no refund"
TOOLS = (
    _tool("search_flights", 2.0, _RIDE, _found("flights"), f"Show the flights {_SEATS}"),
    _tool("search_trains", 3.0, _RIDE, _found("trains"), f"Show the trains {_SEATS}"),
    _tool("ask_agency", 8.0, _RIDE, _BOTH, f"Ask the agency for flights and trains {_SEATS}; slow"),
    _tool("search_hotels", 2.0, _CITY, _found("hotels"), f"Show the hotels {_ROOMS}"),
    _tool("hotel_directory", 6.0, _CITY, _found("hotels"), f"Ask for the hotels {_ROOMS}; slow"),
    _tool("book_flight", 4.0, _FLIGHT, _RECEIPT, f"Buy a seat on a flight; {_ONE_MORE}"),
    _tool("book_train", 5.0, _TRAIN, _RECEIPT, f"Buy a seat on a train; {_ONE_MORE}"),
    _tool("agency_book", 10.0, _OFFER, _RECEIPT, f"Buy either, for {FEE} more; slow; {_ONE_MORE}"),
    _tool("book_hotel", 3.0, _STAY, _RECEIPT, f"Book a room and pay for it; {_ONE_MORE}"),
    _tool("call_hotel", 9.0, _STAY, _RECEIPT, f"Book a room by telephone; slow; {_ONE_MORE}"),
    _tool(
        "list_bookings", 1.0, object_schema(), _STATEMENT, "List all bookings and what was spent"
    ),
)
