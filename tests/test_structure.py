"""The check of the code's structure finds what is too large."""

from pathlib import Path

from scripts.structure import (
    FOLDER_MODULES_MAX,
    MODULE_LINES_MAX,
    REPEATED_NAMES_MAX,
    ROOT,
    find_full_folders,
    find_large_subjects,
    find_long_modules,
    find_repeated_names,
)

TUMIRA = ROOT / "tumira"


def test_a_full_folder_is_found() -> None:
    modules = {TUMIRA / "mail" / f"module_{number}.py": 10 for number in range(FOLDER_MODULES_MAX)}
    assert not list(find_full_folders(modules))
    modules[TUMIRA / "mail" / "one_more.py"] = 10
    assert [problem.split(":")[0] for problem in find_full_folders(modules)] == ["tumira/mail"]


def test_a_long_module_of_the_product_is_found() -> None:
    modules = {
        TUMIRA / "mail" / "smtp.py": MODULE_LINES_MAX,
        TUMIRA / "mail" / "outbox.py": MODULE_LINES_MAX + 1,
        ROOT / "tests" / "test_long.py": MODULE_LINES_MAX + 1,
    }
    assert [problem.split(":")[0] for problem in find_long_modules(modules)] == ["tumira/mail/outbox.py"]


def test_a_large_subject_is_found() -> None:
    modules = {TUMIRA / f"subject_{number}" / "rules.py": 100 for number in range(9)}
    assert not list(find_large_subjects(modules))
    modules[TUMIRA / "subject_0" / "store.py"] = 100
    assert [problem.split(":")[0] for problem in find_large_subjects(modules)] == ["tumira/subject_0"]


def test_names_of_classes_that_stand_twice_are_found(tmp_path: Path) -> None:
    places = [tmp_path / "one.py", tmp_path / "two.py"]
    for count in (REPEATED_NAMES_MAX, REPEATED_NAMES_MAX + 1):
        code = "\n".join(f"class Class{number}: ...\nclass _Private{number}: ..." for number in range(count))
        for place in places:
            place.write_text(code)
        found = list(find_repeated_names(iter(places)))
        assert bool(found) == (count > REPEATED_NAMES_MAX)
        assert len(found) in {0, 1 + count}
