// How ranks, layers and batches must divide.
#include "rules.h"

using namespace tandem;

TEST_CASE("each rule of layout and batch fires alone, with key, value, rule and way out") {
  check_each_fires_alone({
      {{"train.micro_batch=65536", "train.global_batch=65536", "train.seq_len=65536"},
       1,
       "train.micro_batch = 65536: makes the token dimension of a micro-batch 4294967296 long, "
       "beyond "
       "the 2147483647 of a matrix; make it smaller"},
      {{"train.micro_batch=32768", "train.global_batch=32768", "train.seq_len=32768"},
       1,
       "train.micro_batch = 32768: makes the routed rows of a micro-batch 2147483648 long, beyond "
       "the "
       "2147483647 of a matrix; make it smaller"},
      {{"parallel.ep=4", "train.micro_batch=32768", "train.global_batch=131072",
        "train.seq_len=16384"},
       4,
       "parallel.ep = 4: makes the rows one rank may receive 4294967296 long, beyond the "
       "2147483647 of a "
       "matrix; make it smaller"},
      {{"parallel.pp=2"},
       3,
       "parallel.pp = 2: does not divide the 3 ranks of this run; start 2 ranks (mpirun -np 2, or "
       "--ranks 2), or set parallel.pp=1 "
       "train.global_batch=9"},
      // What would follow from a dp that nobody knows is not said.
      {{"parallel.pp=2", "parallel.ep=4", "train.global_batch=7"},
       3,
       "parallel.pp = 2: does not divide the 3 ranks of this run; set parallel.pp=1 parallel.ep=1 "
       "train.global_batch=9"},
      {{"parallel.pp=2", "parallel.dp=3", "train.global_batch=9"},
       3,
       "parallel.pp = 2: does not divide the 3 ranks of this run; start 6 ranks (mpirun -np 6, "
       "or --ranks 6), or set parallel.pp=1"},
      {{"parallel.pp=4096", "parallel.vpp=2", "parallel.spread=spread", "train.global_batch=4096"},
       4096,
       "train.global_batch = 4096: makes 4096 micro-batches a step, and the programs of more than "
       "63 are too large to hold; set parallel.vpp=1 train.global_batch=127"},
      {{"parallel.pp=8", "parallel.vpp=1024", "parallel.spread=spread", "train.global_batch=64"},
       8,
       "train.global_batch = 64: makes 64 micro-batches a step, and the programs of more than 63 "
       "are too large to hold; give at most 56, or raise train.micro_batch or parallel.dp"},
      {{"parallel.dp=4"},
       2,
       "parallel.dp = 4: pp x dp = 1 x 4 is not the 2 ranks of this run; start 4 ranks (mpirun -np "
       "4, or --ranks 4), or set parallel.dp=2"},
      {{"parallel.vpp=2"},
       1,
       "parallel.vpp = 2: interleaving needs more than one pipeline stage; set parallel.vpp=1"},
      {{"model.layers=5", "parallel.pp=2"},
       2,
       "model.layers = 5: does not divide over pp x vpp = 2 virtual stages; set "
       "parallel.spread=spread, "
       "give parallel.partition, or take 6 layers"},
      {{"parallel.pp=2", "parallel.partition=[2,1,1]"},
       2,
       "parallel.partition = [3 entries]: needs pp x vpp = 2 entries, one per virtual stage; give "
       "2 entries, or set parallel.partition=[]"},
      {{"parallel.pp=2", "parallel.partition=[2,1]"},
       2,
       "parallel.partition = [2 entries]: adds up to 3 layers, but model.layers is 4; make the two "
       "equal, or set parallel.partition=[]"},
      {{"parallel.pp=2", "parallel.partition=[10000,10000]"},
       2,
       "parallel.partition = [2 entries]: adds up to 20000 layers, but model.layers is 4; "
       "make the two equal, or set parallel.partition=[]"},
      {{"parallel.ep=2"},
       1,
       "parallel.ep = 2: does not divide the 1 data-parallel rank it is drawn from; set "
       "parallel.ep=1, or start 2 ranks (mpirun -np 2, or --ranks 2)"},
      {{"parallel.dp=2", "parallel.ep=4"},
       0,
       "parallel.ep = 4: does not divide the 2 data-parallel ranks it is drawn from; set "
       "parallel.ep=2"},
      {{"model.experts=0", "parallel.ep=2"},
       2,
       "parallel.ep = 2: there are no experts to share, as model.experts is 0; set parallel.ep=1"},
      {{"parallel.ep=3", "train.global_batch=9"},
       3,
       "parallel.ep = 3: does not divide model.experts = 8; set parallel.ep=1"},
      {{"train.micro_batch=3"},
       2,
       "train.global_batch = 8: not a multiple of train.micro_batch x parallel.dp = 3 x 2 (2 ranks "
       "over parallel.pp = 1); set "
       "train.global_batch=12"},
      {{"parallel.pp=2", "parallel.vpp=2", "parallel.microbatch_group=1"},
       2,
       "parallel.microbatch_group = 1: below parallel.pp = 2, the interleaved pipeline would "
       "starve; set "
       "parallel.microbatch_group=0"},
      {{"parallel.pp=2", "parallel.vpp=2", "train.global_batch=1"},
       2,
       "parallel.microbatch_group = 2: more than the 1 micro-batch of a step; set "
       "train.global_batch=2"},
      {{"parallel.pp=2", "parallel.vpp=2", "parallel.microbatch_group=3", "train.global_batch=7"},
       2,
       "parallel.microbatch_group = 3: leaves a last group of 1 of the 7 micro-batches, fewer than "
       "parallel.pp = 2; set train.global_batch=8"},
      {{"train.global_batch=1073741824"},
       1,
       "train.global_batch = 1073741824: makes 1073741824 micro-batches a step, and the programs "
       "of "
       "more than 104857 are too large to hold; give at most 104857, or raise train.micro_batch or "
       "parallel.dp"},
      {{"train.eval_batches=104858"},
       1,
       "train.eval_batches = 104858: the programs of so many micro-batches are too large to hold; "
       "give at most 104857"},
      {{"train.micro_batch=32768", "train.global_batch=32768", "train.eval_batches=65536"},
       1,
       "train.eval_batches = 65536: the programs of so many micro-batches are too large to hold; "
       "give at most 65535"},
  });
}
