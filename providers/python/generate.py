"""Makes the Python code of the contract from the .proto files, in the folder `cloudprovider` beside this file. Run it once, and after each change of the contract."""

import argparse
import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

here = Path(__file__).resolve().parent
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--proto", type=Path, default=here.parents[1] / "proto", help="the folder with the contract (default: %(default)s)")
proto = parser.parse_args().proto
sources = sorted(str(path) for path in (proto / "cloudprovider" / "v1alpha1").glob("*.proto"))
if not sources:
    sys.exit(f"there are no .proto files in {proto}/cloudprovider/v1alpha1")
flags = [f"--proto_path={proto}", f"--proto_path={files('grpc_tools') / '_proto'}"]
sys.exit(protoc.main(["protoc", *flags, f"--python_out={here}", f"--pyi_out={here}", f"--grpc_python_out={here}", *sources]))
