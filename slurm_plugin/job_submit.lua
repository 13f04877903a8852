-- SPDX-License-Identifier: Apache-2.0
--
-- Puts the gate of laas-slurm before each job of the partition, and keeps users from lifting it.
--
-- Alone: JobSubmitPlugins=lua, and this file as job_submit.lua beside slurm.conf. With a script of
-- the site: end that script with dofile("/etc/laas/job_submit.lua"); it is asked first.

local GATE = "laas_gate"
local site_submit, site_modify = slurm_job_submit, slurm_job_modify

local function partition()
   local file = io.open(LAAS_CONF or "/etc/laas/laas-slurm.conf")
   if file == nil then
      return nil
   end
   local found
   for line in file:lines() do
      found = line:match("^%s*partition%s*=%s*(%S+)") or found
   end
   file:close()
   return found
end

-- The user that slurmctld runs as, which is that of the daemon.
local function own_uid()
   local file = io.open("/proc/self/status")
   local text = file and file:read("*a") or ""
   if file then
      file:close()
   end
   return tonumber(text:match("Uid:%s*(%d+)"))
end

local function names(list)
   local found = {}
   for name in (list or ""):gmatch("[^,]+") do
      found[#found + 1] = name
   end
   return found
end

local function asks(list, wanted)
   for _, name in ipairs(names(list)) do
      if name:match("^[^:]+") == wanted then
         return true
      end
   end
   return false
end

local function given(value)
   return value ~= nil and value ~= "" and value ~= slurm.NO_VAL and value ~= slurm.NO_VAL16
      and value ~= slurm.NO_VAL64
end

-- Why the plug-in cannot give the job links of its own; nil if it can.
local function refusal(job)
   if #names(job.partition) > 1 then
      return "name one partition: its jobs own their links, those of others do not"
   elseif given(job.req_nodes) then
      return "leave out --nodelist: the service chooses hosts together with their links"
   elseif given(job.reservation) then
      return "leave out --reservation: the service chooses among all hosts of the partition"
   elseif given(job.het_job_offset) then
      return "submit its parts as jobs of their own: parts of a heterogeneous job share no links"
   elseif given(job.tres_per_job) or given(job.tres_per_socket) or given(job.tres_per_task) then
      return "ask for GPUs and the like by node, with --gres"
   elseif (job.features or ""):match("[%[%]%*%(%)]") then
      return "use only & or | between the features of --constraint"
   elseif job.shared == 1 or job.shared == 2 or job.shared == 3 then
      return "leave out --oversubscribe and --exclusive=user: a job has its hosts to itself"
   end
   return nil
end

function slurm_job_submit(job, parts, uid)
   if site_submit ~= nil then
      local answer = site_submit(job, parts, uid)
      if answer ~= slurm.SUCCESS then
         return answer
      end
   end
   local ours = partition()
   local default
   for name, part in pairs(parts) do
      if part.flag_default == 1 then
         default = name
      end
   end
   local wanted = given(job.partition) and job.partition or default
   if asks(job.licenses, GATE) then
      slurm.log_user("laas: the licence " .. GATE .. " is not for jobs")
      return slurm.ERROR
   elseif ours == nil or not asks(wanted, ours) then
      return slurm.SUCCESS
   end
   local why = refusal(job)
   if why ~= nil then
      slurm.log_user("laas: " .. why)
      return slurm.ERROR
   end
   if given(job.min_nodes) then
      job.max_nodes = job.min_nodes -- a range begins with as few as it may
   end
   job.shared = 0
   job.licenses = given(job.licenses) and (job.licenses .. "," .. GATE .. ":1") or (GATE .. ":1")
   job.admin_comment = "laas new - 0: submitted"
   return slurm.SUCCESS
end

function slurm_job_modify(job, record, parts, uid)
   if site_modify ~= nil then
      local answer = site_modify(job, record, parts, uid)
      if answer ~= slurm.SUCCESS then
         return answer
      end
   end
   local ours = partition()
   if uid == 0 or uid == own_uid() or ours == nil then
      return slurm.SUCCESS
   end
   local inside = record.partition == ours
   if not inside and given(job.partition) and asks(job.partition, ours) then
      slurm.log_user("laas: submit the job to partition " .. ours .. " again")
      return slurm.ERROR
   end
   if inside and (job.licenses ~= nil or given(job.partition) or given(job.req_nodes)
         or given(job.reservation) or given(job.features)) then
      slurm.log_user("laas: licences, partition, nodes, reservation and features of a job that "
         .. "owns its links stay; submit it again")
      return slurm.ESLURM_ACCESS_DENIED or slurm.ERROR -- not every release shows the words
   end
   return slurm.SUCCESS
end

return slurm.SUCCESS
