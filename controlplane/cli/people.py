"""token, binding, whoami: who may ask the plane, and for what."""

from enum import StrEnum
from typing import Annotated

import typer

from controlplane.cli import render
from controlplane.cli.asking import OutputOption, TokenFileOption, client, number_of
from controlplane.cli.completing import names
from controlplane.cli.render import Json, Output, age, until
from controlplane.cli.secret import tell_secret
from controlplane.cli.table import command, group

app = typer.Typer(rich_markup_mode=None)
tokens = group("token", app)
bindings = group("binding", app)


class Role(StrEnum):
    """What a binding gives."""

    PLATFORM_ADMIN = "platform-admin"
    TEAM_LEAD = "team-lead"
    MEMBER = "member"
    AUDITOR = "auditor"


class Scope(StrEnum):
    """What a token narrows its roles to."""

    READ = "read"
    SUBMIT = "submit"
    ADMIN = "admin"


Principal = Annotated[str, typer.Argument(metavar="PRINCIPAL", help="Whose.")]
RoleOption = Annotated[Role, typer.Option(help="What it may do.")]
ThereOption = Annotated[
    str | None,
    typer.Option("--queue", "-q", help="There and below; none: everywhere.", autocompletion=names("queue")),
]
ServiceOption = Annotated[bool, typer.Option(help="A service's, not a person's.")]
TokenNumber = Annotated[
    str, typer.Argument(metavar="TOKEN", help="Its number, as listed.", autocompletion=names("token"))
]
BindingNumber = Annotated[
    str, typer.Argument(metavar="BINDING", help="Its number, as listed.", autocompletion=names("binding"))
]


@command(
    tokens,
    "create",
    "muster token create ada --queue lab/vision --expires-in 30d --token-file ada.token",
    "muster token create ci --service --role member --queue lab --scope submit --name pipeline --token-file ci.token",
)
def create_token(  # noqa: PLR0917 - options of a command are its arguments
    principal: Principal,
    role: RoleOption = Role.MEMBER,
    queue: ThereOption = None,
    scope: Annotated[list[Scope] | None, typer.Option(help="Narrows what the role may; again for more.")] = None,
    service: ServiceOption = False,
    name: Annotated[str, typer.Option(help="What it is for, in the list.")] = "",
    expires_in: Annotated[
        str | None, typer.Option("--expires-in", "--valid", help="How long it can be used, as in 30d; at most 366d.")
    ] = None,
    token_file: TokenFileOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a token for a person or service, who gets the role; it is shown this once."""
    body: Json = {
        "principal": principal, "kind": _kind(service), "role": role.value, "queue": queue, "expiresIn": expires_in,
        "name": name or None, "scopes": [each.value for each in scope or []] or None,
    }  # fmt: skip
    given = {key: value for key, value in body.items() if value is not None}

    def words(made: Json) -> str:
        return f"token {made['id']} of {principal} ({role}), {_ending(made)}"

    tell_secret(lambda: client().post("/tokens", given), words, token_file, output, lambda made: made["id"])


@command(tokens, "list", "muster token list", "muster token list -o json")
def list_tokens(output: OutputOption = Output.TABLE) -> None:
    """List tokens that you may see, never their text."""
    found = list(client().items("/tokens"))
    render.listed(found, output, _TOKEN_COLUMNS, "no token", lambda each: each["id"])


@command(tokens, "revoke", "muster token revoke 2")
def revoke_token(number: TokenNumber, output: OutputOption = Output.TABLE) -> None:
    """End a token at once."""
    client().delete(f"/tokens/{number_of(number, 'token')}", "*")
    render.show({"id": int(number), "result": "revoked"}, output, lambda: print(f"token {number} is revoked"))


@command(bindings, "create", "muster binding create bob --role team-lead --queue lab")
def create_binding(
    principal: Principal,
    role: Annotated[Role, typer.Option(help="What it may do.")],
    queue: ThereOption = None,
    service: ServiceOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Give a role to a person or service; what its tokens may is what its roles may."""
    body: Json = {"principal": principal, "kind": _kind(service), "role": role.value, "queue": queue}
    made = client().make("/bindings", {key: value for key, value in body.items() if value is not None})
    where = f" of {queue}" if queue else ""
    told = f"binding {made['id']}: {principal} is {role}{where}"
    render.show(made, output, lambda: print(told), lambda each: each["id"])


@command(bindings, "list", "muster binding list")
def list_bindings(output: OutputOption = Output.TABLE) -> None:
    """List who has which role where."""
    found = list(client().items("/bindings"))
    render.listed(found, output, _BINDING_COLUMNS, "no binding", lambda each: each["id"])


@command(bindings, "delete", "muster binding delete 2")
def delete_binding(number: BindingNumber, output: OutputOption = Output.TABLE) -> None:
    """Take a role away again, at once."""
    client().delete(f"/bindings/{number_of(number, 'binding')}", "*")
    render.show({"id": int(number), "result": "deleted"}, output, lambda: print(f"binding {number} is gone"))


@command(app, "whoami", "muster whoami")
def whoami(output: OutputOption = Output.TABLE) -> None:
    """Say who you are to the plane."""
    found = client().get("/whoami")
    scopes = [each for each in found.get("scopes", []) if each != Scope.ADMIN]
    narrowed = f" (this token: {', '.join(scopes)} only)" if scopes and scopes == found["scopes"] else ""
    told = f"{found['principal']}: {', '.join(found['roles']) or 'no role'}{narrowed}"
    render.show(found, output, lambda: print(told), lambda each: each["principal"])


def _kind(is_service: bool) -> str:
    return "service" if is_service else "person"


def _ending(made: Json) -> str:
    return f"ends {until(made['expiresAt'])}" if made.get("expiresAt") else "without end"


def _token_state(each: Json) -> str:
    if each["revokedAt"]:
        return "revoked"
    return "expired" if each["expiresAt"] and render.seconds_since(each["expiresAt"]) >= 0 else "good"


_TOKEN_COLUMNS: list[render.Column] = [
    ("ID", lambda each: each["id"]),
    ("PRINCIPAL", lambda each: each["principal"]),
    ("KIND", lambda each: each["kind"]),
    ("NAME", lambda each: each["name"] or "-"),
    ("SCOPES", lambda each: ",".join(each["scopes"])),
    ("STATE", _token_state),
    ("AGE", lambda each: age(each["createdAt"])),
    ("ENDS", lambda each: until(each["expiresAt"]) or "never"),
    ("LAST USED", lambda each: each["lastUsedOn"] or "never"),
]
_BINDING_COLUMNS: list[render.Column] = [
    ("ID", lambda each: each["id"]),
    ("PRINCIPAL", lambda each: each["principal"]),
    ("KIND", lambda each: each["kind"]),
    ("ROLE", lambda each: each["role"]),
    ("QUEUE", lambda each: each["queue"] or "everywhere"),
    ("AGE", lambda each: age(each["createdAt"])),
]
