-- Writes the rows of a fresh Tarantool's own spaces, which every snapshot must have, into the file named as argument:
--   tarantool scripts/tarantool-template.lua src/tailrace/adaptor/tarantool/front/system.msgpack
local fio, msgpack = require('fio'), require('msgpack')
local path = fio.abspath(arg[1])
box.cfg{work_dir = fio.tempdir(), log_level = 1, wal_mode = 'none'}

local rows = {}
for _, space in box.space._space:pairs() do
    local is_own = space[1] == box.space._truncate.id or space[1] == box.space._cluster.id
    if space[1] < 512 and space[4] == 'memtx' and not is_own then
        for _, tuple in box.space[space[1]]:pairs() do
            if not (space[1] == box.schema.SCHEMA_ID and (tuple[1] == 'cluster' or tuple[1] == 'max_id')) then
                table.insert(rows, {space[1], tuple})
            end
        end
    end
end
local file = fio.open(path, {'O_WRONLY', 'O_CREAT', 'O_TRUNC'}, tonumber('644', 8))
file:write(msgpack.encode({version = box.info.version, rows = rows}))
file:close()
os.exit(0)
