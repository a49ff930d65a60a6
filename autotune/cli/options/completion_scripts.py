"""Scripts that make shells complete. The program says what can follow; the shell quotes names and adds spaces.

The program prints a line for each word that can follow: the word, and after a tab what it is. A path is marked as a
`folder` or as a `file`.
"""

from __future__ import annotations

from typing import Literal

Shell = Literal["bash", "zsh", "fish"]

_ANSWER = "_AUTOTUNE_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args"

_BASH = f"""\
_autotune_completion() {{
    local line="${{COMP_LINE:0:COMP_POINT}}" typed="${{COMP_WORDS[COMP_CWORD]}}" replaced=$2
    local quotes=$'["\\']' place word kind
    COMPREPLY=()
    # Bash cuts words at signs such as `:`, and replaces only what follows. The answers are whole words.
    until [[ $line == *"$typed" ]]; do typed=${{typed%?}}; done
    for ((place = COMP_CWORD - 1; place > 0; place--)); do
        [[ $line == *"${{COMP_WORDS[place]}}$typed" ]] || break
        typed=${{COMP_WORDS[place]}}$typed
    done
    [[ $typed == --*=* ]] && typed=${{typed#*=}}
    typed=${{typed//\\\\?/x}} replaced=${{replaced//\\\\?/x}}  # As long as without quotes.
    typed=${{typed//$quotes}} replaced=${{replaced//$quotes}}
    place=$((${{#typed}} - ${{#replaced}}))
    while IFS=$'\\t' read -r word kind; do
        [[ $word ]] || continue
        word=${{word:place > 0 ? place : 0}}
        # File names are quoted.
        [[ $kind == folder || $kind == file ]] && compopt -o filenames
        COMPREPLY+=("$word")
    done < <({_ANSWER} _TYPER_COMPLETE_ARGS="$line" "$1")
    if [[ ${{#COMPREPLY[@]}} == 1 && $COMPREPLY == */ ]]; then
        compopt -o nospace
        # Bash closes a quote after an answer, but not while there are several.
        [[ ${{line: -1-${{#2}}:1}} == $quotes ]] && COMPREPLY+=("$COMPREPLY...")
    fi
}}

complete -o default -F _autotune_completion autotune"""

_ZSH = f"""\
#compdef autotune

_autotune_completion() {{
    local line tab=$'\\t'
    local -a folders others described
    while IFS= read -r line; do
        if [[ $line == *${{tab}}folder ]]; then
            folders+=("${{line%%$tab*}}")
        elif [[ $line ]]; then
            others+=("${{line%%$tab*}}")
            described+=("${{line/$tab/  -- }}")
        fi
    done < <({_ANSWER} _TYPER_COMPLETE_ARGS="${{(j: :)words[1,CURRENT]}}" autotune)
    [[ $PREFIX == --*=* ]] && compset -P '*='
    if compset -P '\\~/'; then  # It would be quoted.
        folders=("${{folders[@]#\\~/}}") others=("${{others[@]#\\~/}}")
    fi
    if (( $#folders + $#others )); then
        compadd -S '' -a folders
        compadd -l -d described -a others
    else
        _files
    fi
}}

if [[ $funcstack[1] == _autotune ]]; then  # This file was loaded to complete.
    _autotune_completion
else
    compdef _autotune_completion autotune
fi"""

_FISH = f"""\
function _autotune_completion
    # Fish replaces the whole word, and the answers after an equals sign are the words that follow it.
    set --local before (string match --regex -- '^--[^=]+=' (commandline --current-token --cut-at-cursor))
    for described in (env {_ANSWER} _TYPER_COMPLETE_ARGS=(commandline --current-process --cut-at-cursor) autotune)
        echo -- "$before$described"
    end
end

"""
_FISH += (
    "complete --command autotune --no-files --arguments '(_autotune_completion)'"
    ' --condition "env _AUTOTUNE_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=is-args'
    ' _TYPER_COMPLETE_ARGS=(commandline -cp) autotune"'
)

SCRIPTS: dict[Shell, str] = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
"""The script of each shell."""

__all__ = ["SCRIPTS", "Shell"]
