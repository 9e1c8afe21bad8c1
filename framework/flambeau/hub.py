"""Published models: a repository with a `hubconf.py`, on GitHub or in a folder, and weights by URL.

A repository's code runs when it is loaded. So one from GitHub is asked about first, unless it is on the trusted list in the hub's
folder. Weights are data: they are read by `flambeau.load`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlparse
from urllib.request import Request, urlopen

from ._on_demand import names_on_demand

__all__ = [
    "download_url_to_file",
    "get_dir",
    "help",
    "list",
    "load",
    "load_state_dict_from_url",
    "set_dir",
]

_HUBCONF = "hubconf.py"
_TRUSTED = "trusted_list"
# Owners whose repositories are run without asking, as PyTorch does.
_TRUSTED_OWNERS = ("facebookresearch", "facebookincubator", "pytorch", "fairinternal")
_GITHUB = "https://github.com"
_GITHUB_API = "https://api.github.com"
_CHUNK = 1 << 17  # bytes
_hub_dir: str | None = None
# The beginning of a file's SHA-256 at the end of its name, as in "resnet18-5c106cde.pth"; packages search names with it too.
HASH_REGEX = re.compile(r"-([a-f0-9]{8,})\.")


# Folders


def _get_torch_home() -> str:
    """The folder of files that are kept between runs: ``$TORCH_HOME``, ``$XDG_CACHE_HOME/torch`` or ``~/.cache/torch``.

    torchvision and its like keep their own files there.
    """
    home = os.environ.get("TORCH_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "torch")
    return os.path.expanduser(home)


def get_dir() -> str:
    """The hub's folder: `set_dir`'s, ``$TORCH_HOME/hub``, ``$XDG_CACHE_HOME/torch/hub`` or ``~/.cache/torch/hub``."""
    return os.path.join(_get_torch_home(), "hub") if _hub_dir is None else _hub_dir


def set_dir(d: str | os.PathLike) -> None:
    """Keep repositories and weights in the folder `d` from now on."""
    global _hub_dir
    _hub_dir = os.path.expanduser(d)


# Repositories


def list(
    github: str,
    force_reload: bool = False,
    skip_validation: bool = False,
    trust_repo: bool | str | None = "check",
    verbose: bool = True,
) -> Any:
    """The names of the entry points of a repository.

    Args:
        github: ``owner/name``, ``owner/name:branch`` or ``owner/name:tag``.
        force_reload: download it again.
        skip_validation: do not ask GitHub whether the branch is the owner's.
        trust_repo: True puts it on the trusted list, False asks, ``'check'`` asks unless it is on the list.
        verbose: say when the copy in the hub's folder is used.
    Raises: ValueError for a repository that is not named so, or a branch that is a fork's; PermissionError for one that is not
        trusted.
    """
    folder = _repository(github, force_reload, trust_repo, "list", verbose, skip_validation)
    module = _hubconf(folder)
    return [name for name in dir(module) if callable(getattr(module, name)) and not name.startswith("_")]


def help(
    github: str,
    model: str,
    force_reload: bool = False,
    skip_validation: bool = False,
    trust_repo: bool | str | None = "check",
) -> str | None:
    """The docstring of entry point `model`; see `list` for the other arguments."""
    folder = _repository(github, force_reload, trust_repo, "help", True, skip_validation)
    return _entry_point(_hubconf(folder), model).__doc__


def load(
    repo_or_dir: str,
    model: str,
    *args: Any,
    source: str = "github",
    trust_repo: bool | str | None = "check",
    force_reload: bool = False,
    verbose: bool = True,
    skip_validation: bool = False,
    **kwargs: Any,
) -> Any:
    """What entry point `model` of a repository returns for `args` and `kwargs`. This runs the repository's code.

    Args:
        repo_or_dir: a repository as for `list`, or a folder that holds a `hubconf.py`.
        model: the entry point's name.
        source: ``'github'`` or ``'local'``.
        trust_repo, force_reload, verbose, skip_validation: see `list`.
    Raises: ValueError for another `source`; RuntimeError for an entry point that is not there, or missing dependencies.
    """
    source = source.lower()
    if source not in ("github", "local"):
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if source == "github":
        folder = _repository(repo_or_dir, force_reload, trust_repo, "load", verbose, skip_validation)
    else:
        folder = os.path.expanduser(repo_or_dir)
    return _entry_point(_hubconf(folder), model)(*args, **kwargs)


def _entry_point(module: Any, name: str) -> Any:
    missing = [package for package in getattr(module, "dependencies", []) if importlib.util.find_spec(package) is None]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    found = getattr(module, name, None)
    if not callable(found):
        raise RuntimeError(f"Cannot find callable {name} in hubconf")
    return found


def _hubconf(folder: str) -> Any:
    """The module `hubconf.py` of `folder`, which is on the import path while it runs."""
    path = os.path.join(folder, _HUBCONF)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"hub: there is no {_HUBCONF} in {folder}")
    spec = importlib.util.spec_from_file_location("hubconf", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    return module


def _repository(
    github: str, force_reload: bool, trust_repo: bool | str | None, called: str, verbose: bool, skip_validation: bool
) -> str:
    """The folder of a repository's copy, downloaded if need be."""
    owner, name, ref = _parsed(github)
    hub = Path(get_dir())
    hub.mkdir(parents=True, exist_ok=True)
    folder = hub / "_".join([owner, name, ref.replace("/", "_")])
    _check_trust(hub, owner, name, trust_repo, called)
    if folder.exists() and not force_reload:
        if verbose:
            sys.stderr.write(f"Using cache found in {folder}\n")
        return str(folder)
    if not skip_validation:
        _check_ref(owner, name, ref)
    _unpack(f"{_GITHUB}/{owner}/{name}/zipball/{ref}", folder)
    return str(folder)


def _parsed(github: str) -> tuple[str, str, str]:
    """Owner, name and branch or tag."""
    match = re.fullmatch(r"([\w.-]+)/([\w.-]+)(?::([\w./-]+))?", github)
    if match is None or ".." in github:
        raise ValueError(f"hub: a repository is named owner/name or owner/name:branch, got {github!r}")
    owner, name, ref = match.groups()
    if ref is None:
        ref = "main" if _answers(f"{_GITHUB}/{owner}/{name}/tree/main/") else "master"
    return owner, name, ref


def _answers(url: str) -> bool:
    try:
        with urlopen(url):
            return True
    except HTTPError as error:
        if error.code == 404:
            return False
        raise


def _check_ref(owner: str, name: str, ref: str) -> None:
    """Refuse a branch of a fork, which GitHub serves under the owner's name too."""
    for kind in ("branches", "tags"):
        page = 0
        while True:
            page += 1
            request = Request(f"{_GITHUB_API}/repos/{owner}/{name}/{kind}?per_page=100&page={page}")
            if token := os.environ.get("GITHUB_TOKEN"):
                request.add_header("Authorization", f"token {token}")
            with urlopen(request) as answer:
                found = json.loads(answer.read())
            if any(entry["name"] == ref or entry["commit"]["sha"].startswith(ref) for entry in found):
                return
            if len(found) < 100:
                break
    raise ValueError(
        f"Cannot find {ref} in https://github.com/{owner}/{name}. If it's a commit from a forked repo, please call hub.load() "
        "with forked repo directly."
    )


def _check_trust(hub: Path, owner: str, name: str, trust_repo: bool | str | None, called: str) -> None:
    if trust_repo not in (True, False, None, "check"):
        raise ValueError(f"hub: trust_repo must be True, False or 'check', got {trust_repo!r}")
    listed, key = hub / _TRUSTED, f"{owner}_{name}"
    known = listed.read_text(encoding="utf-8").split() if listed.exists() else []
    if key in known or owner in _TRUSTED_OWNERS and trust_repo is not False:
        return
    if trust_repo is None:
        warnings.warn(
            f"You are about to download and run code from an untrusted repository. Call {called}(..., trust_repo=True) to "
            f"trust {owner}/{name}, or trust_repo='check' to be asked.",
            stacklevel=4,
        )
        return
    if trust_repo is not True:
        answer = input(f"The repository {owner}_{name} does not belong to the list of trusted repositories. Run its code (y/N)? ")
        if answer.lower() not in ("y", "yes"):
            raise PermissionError(f"hub.{called}: the repository {owner}/{name} is not trusted")
    with listed.open("a", encoding="utf-8") as file:
        file.write(key + "\n")


def _unpack(url: str, folder: Path) -> None:
    """Download the archive at `url` and put its one folder where `folder` is: whole, or not at all."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        archive = os.path.join(work, "archive.zip")
        sys.stderr.write(f'Downloading: "{url}" to {folder}\n')
        download_url_to_file(url, archive, progress=False)
        with zipfile.ZipFile(archive) as packed:
            tops = {name.split("/")[0] for name in packed.namelist()}
            if len(tops) != 1:
                raise RuntimeError(f"hub: the archive of a repository holds one folder, {url} holds {sorted(tops)}")
            packed.extractall(os.path.join(work, "unpacked"))  # removes `..` and absolute paths
        if folder.exists():
            shutil.rmtree(folder)
            _forget_modules(str(folder))
        os.replace(os.path.join(work, "unpacked", tops.pop()), folder)


def _forget_modules(folder: str) -> None:
    """Let modules that were imported from `folder`, whose files were replaced, be imported anew."""
    inside = os.path.join(os.path.realpath(folder), "")
    for name, module in [*sys.modules.items()]:
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and os.path.realpath(file).startswith(inside):
            del sys.modules[name]
    importlib.invalidate_caches()


# Files


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Download `url` to the file `dst`, which appears when it is whole.

    Args:
        hash_prefix: what the SHA-256 of the content, in hexadecimal, has to begin with.
        progress: show a bar on stderr; needs the package tqdm.
    Raises: RuntimeError for another content; URLError where there is no answer.
    """
    dst = os.path.expanduser(dst)
    digest = hashlib.sha256()
    with urlopen(Request(url, headers={"User-Agent": "flambeau.hub"})) as answer:
        total = answer.headers.get("Content-Length")
        bar = _bar(int(total) if total else None) if progress else None
        handle, partial = tempfile.mkstemp(dir=os.path.dirname(dst) or ".", prefix=os.path.basename(dst) + ".")
        try:
            with os.fdopen(handle, "wb") as file:
                while chunk := answer.read(_CHUNK):
                    file.write(chunk)
                    digest.update(chunk)
                    if bar is not None:
                        bar.update(len(chunk))
            if total and os.path.getsize(partial) != int(total):
                raise RuntimeError(f"hub: {url} ended after {os.path.getsize(partial)} of {total} bytes")
            if hash_prefix is not None and not digest.hexdigest().startswith(hash_prefix):
                raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{digest.hexdigest()}")')
            os.chmod(partial, 0o666 & ~_umask())
            os.replace(partial, dst)
        finally:
            if bar is not None:
                bar.close()
            if os.path.exists(partial):
                os.unlink(partial)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _made(name: str) -> Any:
    if name != "tqdm":
        return None
    try:
        from tqdm import tqdm
    except ImportError as error:
        raise AttributeError("hub.tqdm is the package tqdm's, which is not installed", name=name) from error
    return tqdm


def _listed() -> tuple[str, ...]:
    return ("tqdm",) if importlib.util.find_spec("tqdm") else ()


__getattr__, __dir__ = names_on_demand(__name__, make=_made, listed=_listed)


def _bar(total: int | None) -> Any:
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm(total=total, unit="B", unit_scale=True, unit_divisor=1024)


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = False,
) -> dict[str, Any]:
    """What `flambeau.load` reads of the file at `url`, downloaded once to `model_dir`.

    Args:
        model_dir: by default ``checkpoints`` in the hub's folder.
        map_location, weights_only: see `flambeau.load`.
        progress: show a bar on stderr.
        check_hash: the file's name ends in a dash and the first digits of its SHA-256, which are checked.
        file_name: under which it is kept; by default the URL's.
    Raises: RuntimeError for another content than the name says.
    """
    import flambeau as fb

    folder = model_dir if model_dir is not None else os.path.join(get_dir(), "checkpoints")
    os.makedirs(folder, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        sys.stderr.write(f'Downloading: "{url}" to {path}\n')
        match = HASH_REGEX.search(name) if check_hash else None
        if check_hash and match is None:
            raise RuntimeError(f"hub: check_hash=True needs a name like model-0123abcd.pt, got {name}")
        download_url_to_file(url, path, match.group(1) if match else None, progress=progress)
    return fb.load(path, map_location=map_location, weights_only=weights_only)
