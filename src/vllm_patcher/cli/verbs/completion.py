"""The verb `completion`."""

from __future__ import annotations

import click

from vllm_patcher.cli.shell import EXIT_OK, Output

# The program gives what click has for each shell: a type (plain, file or dir), a value, a help.
# click's own scripts complete one name of a program, and bash no files beside ids.

_BASH = r"""
_vllm_patch() {
    local IFS=$'\n' type value
    # What stands before the cursor; bash makes three words of --option=value.
    local words="${COMP_WORDS[*]:0:COMP_CWORD+1}"
    words=${words//$'\n='$'\n'/=}
    words=${words/%$'\n='/=}
    local breaks=${words//[^$'\n']/}
    COMPREPLY=()
    while IFS=, read -r type value; do
        case $type in
            plain) COMPREPLY+=("$value") ;;
            dir) compopt -o dirnames ;;
            file)
                compopt -o default -o filenames
                mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$value")
                ;;
        esac
    done < <(env COMP_WORDS="$words" COMP_CWORD="${#breaks}" \
        _VLLM_PATCH_COMPLETE=bash_complete "$1" 2>/dev/null)
}
complete -o nosort -F _vllm_patch vllm-patch vllm-patcher
"""

_ZSH = r"""
#compdef vllm-patch vllm-patcher
_vllm_patch() {
    local type value title
    local -a found plain titled
    found=("${(@f)$(env COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT - 1)) \
        _VLLM_PATCH_COMPLETE=zsh_complete ${~words[1]} 2>/dev/null)}")
    compset -P '--*='
    for type value title in "${found[@]}"; do
        case $type in
            plain) [[ $title == _ ]] && plain+=("$value") || titled+=("$value:$title") ;;
            dir) _path_files -/ ;;
            file) _path_files -f ;;
        esac
    done
    (( $#titled )) && _describe -V patch titled
    (( $#plain )) && compadd -V unsorted -a plain
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _vllm_patch "$@"
else
    compdef _vllm_patch vllm-patch vllm-patcher
fi
"""

_FISH = r"""
function _vllm_patch
    set -l typed (commandline --current-token)
    set -l option (string match --regex -- '^--[^=]+=' $typed)
    # What fish completes for a command that it knows nothing of.
    set -l paths "no-such-command "(string replace -- "$option" '' $typed)
    for item in (env COMP_WORDS=(commandline -cp) COMP_CWORD=$typed \
            _VLLM_PATCH_COMPLETE=fish_complete vllm-patch 2>/dev/null)
        set -l parts (string split --max 1 , -- $item)
        switch $parts[1]
            case plain
                echo "$option$parts[2]"
            case dir
                printf '%s\n' "$option"(complete --do-complete $paths | string match '*/')
            case file
                printf '%s\n' "$option"(complete --do-complete $paths)
        end
    end
end
complete --no-files --command vllm-patch --command vllm-patcher --arguments '(_vllm_patch)'
"""

_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


@click.command("completion")
@click.argument("shell", type=click.Choice([*_SCRIPTS]))
def command(shell: str) -> int:
    """Print what makes a shell complete verbs, ids and files.

    \b
    bash:  eval "$(vllm-patch completion bash)"   in ~/.bashrc
    zsh:   eval "$(vllm-patch completion zsh)"    in ~/.zshrc
    fish:  vllm-patch completion fish | source    in ~/.config/fish/config.fish

    It takes bash 4.4 or later. zsh must have loaded its completion before: ~/.zshrc has, above
    that line, `autoload -Uz compinit && compinit`.
    """  # noqa: D301 - \b is click's mark
    output = Output()
    output.raw(_SCRIPTS[shell].lstrip().encode())
    return output.ending(EXIT_OK)
