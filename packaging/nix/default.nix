# Builds the checkout that this file is in: nix-build packaging/nix. Not run with Nix yet.
#
# /usr does not exist on NixOS, so the units and the precreate hook name the programs in the store (PREFIX=$out).
{ pkgs ? import <nixpkgs> { } }:

pkgs.rustPlatform.buildRustPackage {
  pname = "tranche";
  version = (builtins.fromTOML (builtins.readFile ../../Cargo.toml)).workspace.package.version;
  src = pkgs.lib.cleanSourceWith {
    src = ../..;
    filter = path: _type: baseNameOf path != "target";
  };
  cargoLock.lockFile = ../../Cargo.lock;

  # The Makefile builds each program in its own way: the hooks are static.
  buildPhase = "make build";
  installPhase = "make install PREFIX=$out HOOKS_DIR=$out/share/tranche/hooks.d";
  buildInputs = [ pkgs.glibc.static ];

  # The tests need podman and root.
  doCheck = false;

  meta = {
    description = "Gives a container a GPU, or an exact slice of one, on any engine";
    license = pkgs.lib.licenses.asl20;
    platforms = [ "x86_64-linux" "aarch64-linux" ];
    mainProgram = "tranche";
  };
}
