"""Recipes: typed, complete, and refused by name."""

import pytest

from outspan.config import KEYS, Recipe, differing, read_recipe, with_values


def test_a_recipe_is_read_from_toml(tmp_path):
    path = tmp_path / "r.toml"
    path.write_text('data = "mnist"\nepochs = 3\nlr = 1\n')
    assert read_recipe(path) == Recipe(data="mnist", epochs=3, lr=1.0)


def test_text_is_read_as_its_fields_type():
    assert with_values(Recipe(), {"lr": "0.2", "epochs": "7", "select": "0.5"}) == Recipe(lr=0.2, epochs=7, select="0.5")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epoch = 3", r"r\.toml: unknown key 'epoch', did you mean 'epochs'"),
        ("epochs = 3.5", "epochs must be a whole number, got 3.5"),
        ('epochs = "many"', "epochs must be a whole number, got 'many'"),
        ("data = 3", "data must be text, got 3"),
        ("epochs = true", "epochs must be a whole number, got True"),
        ("epochs = 0", "epochs is out of range, got 0"),
        ("keep = 5", r"keep is out of range, got 5 \(allowed: 1 to candidates\)"),
        ("lr = nan", "lr is out of range, got nan"),
        ('schedule = "linear"', "schedule is out of range, got 'linear' .*cosine"),
        ("epochs = ", "not TOML"),
    ],
)
def test_what_makes_no_sense_is_refused(text, message, tmp_path):
    path = tmp_path / "r.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_recipe(path)


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(ValueError, match="no such file"):
        read_recipe(tmp_path / "none.toml")


def test_differences_are_shown():
    assert differing(Recipe(), Recipe(lr=0.2, seed=3)) == {"seed": (0, 3), "lr": (0.1, 0.2)}
    assert "transforms" in KEYS
