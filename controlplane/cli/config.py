"""The config file: which planes there are, which one is asked, and where each one's token stands.

It names the token's file, never the token. A token comes from a file or the environment, never from the command line.
"""

import os
import stat
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from controlplane.cli.errors import CommandError, Exit

HINT = "`muster up` starts a plane here, `muster context set NAME --url … --token-file …` names one"


@dataclass(frozen=True, slots=True)
class Context:
    """One plane: where it is, and the file that holds its token."""

    name: str
    url: str
    token_file: str = ""


def config_file() -> Path:
    """`MUSTER_CONFIG`, else in the folder that `MUSTER_HOME` names, else in the user's config folder."""
    if chosen := os.environ.get("MUSTER_CONFIG"):
        return Path(chosen).expanduser()
    if home := os.environ.get("MUSTER_HOME"):
        return Path(home).expanduser() / "config.yaml"
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "muster" / "config.yaml"


def read_config(*, warn: bool = True) -> tuple[str, dict[str, Context]]:
    """The name of the current context and all contexts; nothing where there is no file.

    Raises CommandError where the file cannot be read; warns on stderr where others can read it.
    """
    import yaml

    file = config_file()
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
        mode = file.stat().st_mode
    except FileNotFoundError:
        return "", {}
    except OSError as error:
        raise CommandError(f"cannot read {file}: {error.strerror}", Exit.WRONG_INPUT) from None
    except UnicodeDecodeError:
        raise CommandError(f"cannot read {file}: it holds no text", Exit.WRONG_INPUT) from None
    except yaml.YAMLError as error:
        raise CommandError(f"{file} is no YAML: {error}", Exit.WRONG_INPUT) from None
    if warn and mode & (stat.S_IRGRP | stat.S_IROTH):
        print(f"muster: others can read {file}; `chmod 600` it", file=sys.stderr)
    contexts = found.get("contexts") if isinstance(found, dict) else None
    if not isinstance(contexts, dict):
        return "", {}
    known = {
        str(name): Context(str(name), str(each.get("url", "")), str(each.get("token_file", "")))
        for name, each in contexts.items()
        if isinstance(each, dict)
    }
    return str(found.get("current", "")), known


def write_config(current: str, contexts: Mapping[str, Context]) -> None:
    """Write the config file whole, readable by its owner alone; never half of it is seen."""
    import yaml

    file = config_file()
    listed = {each.name: {"url": each.url, "token_file": each.token_file} for each in contexts.values()}
    draft = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
            yaml.safe_dump({"current": current, "contexts": listed}, out, sort_keys=False)
        draft.replace(file)
    except OSError as error:
        raise CommandError(f"cannot write {file}: {error.strerror}", Exit.WRONG_INPUT) from None


def current_context(*, warn: bool = True) -> Context:
    """Where to go: `MUSTER_URL`, else the context that `MUSTER_CONTEXT` or the config file names.

    Raises CommandError where nothing names a plane.
    """
    if url := os.environ.get("MUSTER_URL"):
        return Context("environment", url, "")
    current, contexts = read_config(warn=warn)
    name = os.environ.get("MUSTER_CONTEXT") or current
    if name not in contexts:
        words = f"there is no context {name} in {config_file()}" if name else f"no plane is known ({config_file()})"
        raise CommandError(f"{words}; {HINT}", Exit.WRONG_INPUT)
    return contexts[name]


def token_source(context: Context) -> str:
    """The variable or the file that the token comes from; "" where there is none."""
    if os.environ.get("MUSTER_TOKEN"):
        return "MUSTER_TOKEN"
    return os.environ.get("MUSTER_TOKEN_FILE") or context.token_file


def token_of(context: Context) -> str:
    """The token: of `MUSTER_TOKEN`, else in the file of `MUSTER_TOKEN_FILE` or the context; "" where there is none."""
    if token := os.environ.get("MUSTER_TOKEN"):
        return token.strip()
    file = token_source(context)
    if not file:
        return ""
    try:
        token = Path(file).expanduser().read_text(encoding="utf-8").strip()
    except OSError as error:
        raise CommandError(f"cannot read the token in {file}: {error.strerror}", Exit.WRONG_INPUT) from None
    except UnicodeDecodeError:
        raise CommandError(f"cannot read the token in {file}: it holds no text", Exit.WRONG_INPUT) from None
    if not token:
        raise CommandError(f"the token's file {file} is empty", Exit.WRONG_INPUT)
    return token
