"""The `memgrpo` command. Nothing heavy is imported before the config has been checked."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from memory.errors import UserError

DESCRIPTION = "Train and refine LLM agents that use memory."
EPILOG = """examples:
  memgrpo train                                          the embedded default, no download
  memgrpo train experiment=household/grpo run.seed=1     another experiment, another seed
  memgrpo train -m run.name=sweep run.seed=0,1,2         one run for each value
  memgrpo train --help                                   every option of every group
  memgrpo eval run=runs/household-memharness             evaluate the newest checkpoint
  memgrpo play env=household                             play a task yourself"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Exit code 0: done; 2: a mistake that the user can mend, told without traceback.

    Anything else is a defect or a failing machine and leaves with its traceback, code 1.
    """
    add_working_folder()
    arguments = list(sys.argv[1:] if argv is None else argv)
    parsed = _parser().parse_args(arguments)
    try:
        command: Callable[[argparse.Namespace], int] = parsed.command
        return command(parsed)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def add_working_folder() -> None:
    """Let dotted paths in a config name modules of the user's working folder."""
    # Last in line: a folder of the user's that is called like one of ours must not hide it.
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def _parser() -> argparse.ArgumentParser:
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("memgrpo", description=DESCRIPTION, epilog=EPILOG, formatter_class=style)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    train = commands.add_parser("train", add_help=False, help="train a policy (--help lists every option)")
    train.add_argument("-h", "--help", action="store_true", dest="show_help")
    train.add_argument("-m", "--multirun", action="store_true")
    _add_overrides(train)
    train.set_defaults(command=_train)

    evaluate = commands.add_parser("eval", help="evaluate the newest checkpoint of a run: eval run=<folder>")
    _add_overrides(evaluate)
    evaluate.set_defaults(command=_evaluate)

    play = commands.add_parser("play", help="play a task in the terminal: play env=household")
    play.add_argument("--gold", action="store_true", help="show an episode of the expert")
    play.add_argument("--split", default="train", help="tasks to choose from (default: train)")
    play.add_argument("--task", type=int, default=0, metavar="N", help="number of the task (default: 0)")
    _add_overrides(play)
    play.set_defaults(command=_play)

    report = commands.add_parser("report", help="write report.html of a run again: report run=<folder>")
    _add_overrides(report)
    report.set_defaults(command=_report)
    return parser


def _add_overrides(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="options of the config")
    parser.add_argument("--config-dir", metavar="DIR", help="a folder with config files of your own")


def _train(parsed: argparse.Namespace) -> int:
    if parsed.show_help:
        from launch.help import train_help

        print(train_help(parsed.config_dir))
        return 0
    from launch.train import run_many, run_one

    run = run_many if parsed.multirun else run_one
    return run(parsed.overrides, parsed.config_dir)


def _evaluate(parsed: argparse.Namespace) -> int:
    from launch.saved import evaluate_run

    folder, overrides = _take_run(parsed.overrides, "eval")
    return evaluate_run(folder, overrides, parsed.config_dir)


def _report(parsed: argparse.Namespace) -> int:
    from launch.saved import report_run

    folder, overrides = _take_run(parsed.overrides, "report")
    if overrides:
        raise UserError(f"report takes run=<folder> alone; found {' '.join(overrides)}")
    return report_run(folder)


def _play(parsed: argparse.Namespace) -> int:
    from launch.play import play_task

    return play_task(parsed.overrides, parsed.config_dir, parsed.split, parsed.task, parsed.gold)


def _take_run(overrides: Sequence[str], command: str) -> tuple[str, list[str]]:
    folders = [o.partition("=")[2] for o in overrides if o.startswith("run=")]
    if len(folders) != 1 or not folders[0]:
        raise UserError(
            f"memgrpo {command} needs one run: found {len(folders)}.\n"
            f"  Give its folder, for example: memgrpo {command} run=runs/household-memharness"
        )
    return folders[0], [o for o in overrides if not o.startswith("run=")]


if __name__ == "__main__":
    sys.exit(main())
