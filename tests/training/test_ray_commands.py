"""Every command that trains many models writes the same files on a Ray cluster as with local processes."""

import logging

import pytest

from clusters import ENVIRONMENT, contents

SMALL = ("--data", "few.npz", "--model", "mlp-10", "--seeds", "2", "--set", "epochs=2", "--set", "batch=25")
COMMANDS = {
    "compare": (*SMALL, "--policies", "none,uncertain"),
    "measure": (*SMALL, "--transforms", "rotate,invert"),
    "compose": (*SMALL, "--transforms", "rotate,invert"),
    "core": (*SMALL, "--transforms", "rotate,invert"),
    "mixup": (*SMALL, "--l2", "1e-3,1e-2", "--fractions", "0,1"),
    "grid": ("grid.toml",),
    "reproduce": ("table-3", "--rows", "svhn/wrn-28-10", "--methods", "baseline", "--seeds", "2", "--scale", "0.0003"),
}
GRID = 'data = "few.npz"\nmodel = "mlp-10"\npolicy = "random"\nepochs = 2\nbatch = 25\nvalidation = 20\nlr = [0.01, 0.1]\n'


@pytest.fixture(scope="module")
def connected(ray_cluster):
    """Connect this process to the cluster, as a program on Ray does. The commands use the connection, and its workers."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        import ray  # it reads these variables

        ray.init(address=ray_cluster.address, logging_level=logging.ERROR, log_to_driver=False)
        yield ray_cluster
        assert ray.is_initialized()  # the connection of the program stays
        ray.shutdown()


@pytest.mark.cluster
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_writes_the_files_of_local_processes(command, connected, run, few, narrow, monkeypatch, unchecked):
    monkeypatch.chdir(narrow)  # the folder of few.npz
    (narrow / "grid.toml").write_text(GRID)
    run(command, *COMMANDS[command], "--jobs", 2, "-o", "local")
    run(command, *COMMANDS[command], "--engine", "ray", "--address", connected.address, "-o", "ray")
    files = contents(narrow / "ray")
    assert any(name.endswith((".npy", ".safetensors")) for name in files)  # of trained models
    assert files == contents(narrow / "local")
