"""The verb `completion`."""

from __future__ import annotations

import click

from vllm_patcher.cli.shell import COMPLETE, EXIT_OK, Output


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> int:
    """Print what makes a shell complete verbs, ids and files.

    \b
    bash:  eval "$(vllm-patch completion bash)"   in ~/.bashrc
    zsh:   eval "$(vllm-patch completion zsh)"    in ~/.zshrc
    fish:  vllm-patch completion fish > ~/.config/fish/completions/vllm-patch.fish
    """  # noqa: D301 - \b is click's mark
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    root = click.get_current_context().find_root().command
    if made is None:
        raise click.UsageError(f"nothing is known of {shell}")
    script = made(root, {}, "vllm-patch", COMPLETE).source()
    output = Output()
    output.raw(f"{script.rstrip()}\n".encode())
    return output.ending(EXIT_OK)
