// RUN: hal-materialize-interfaces{targets=cpu}
// ERROR: error[HR2606]: export @entry names no function of one block in the inner module
// ERROR: --> @ex::@entry
builtin.module {
  stream.executable private @ex {
    stream.executable.export public @entry
    builtin.module {
    }
  }
}
// -----
// A function declared only, something else of that name, no module at all, dead blocks.
// ERROR: --> @declared::@entry
// ERROR: --> @no_function::@entry
// ERROR: --> @no_module::@entry
// ERROR: --> @two_blocks::@entry
builtin.module {
  stream.executable private @declared {
    stream.executable.export public @entry
    builtin.module {
      func.func private @entry(!stream.binding) -> ()
    }
  }
  stream.executable private @no_function {
    stream.executable.export public @entry
    builtin.module {
      builtin.module @entry {
      }
    }
  }
  stream.executable private @no_module {
    stream.executable.export public @entry
  }
  stream.executable private @two_blocks {
    stream.executable.export public @entry
    builtin.module {
      func.func @entry() {
        func.return
      ^unreached:
        func.return
      }
    }
  }
}
